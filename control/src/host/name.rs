//! Names of the interfaces Lockgate makes for itself in the daemon's namespace.

use lockgate_dataplane::id::WorkerId;

/// Longest name of an interface, in bytes.
pub const MAX_INTERFACE_NAME: usize = 15;

const PREFIX: &str = "lg";
/// Hexadecimal digits that follow the prefix.
const DIGITS: usize = MAX_INTERFACE_NAME - PREFIX.len();

/// Name of the switch's end of a port's veth pair, and of a tap on its way into its namespace.
///
/// The same for every run, so that a leftover of a killed daemon is recognised; a hash, because names of switches and
/// ports are longer than names of interfaces may be. Of 52 bits: among a thousand ports two collide once in ten billion
/// topologies, and then the second one is refused because the name is taken.
pub fn host_end(switch: &str, port: &str) -> String {
    // The zeroes at the end carry the last letters' difference into the upper bits, which are the ones that are kept.
    let hash = fnv1a(switch.bytes().chain([0]).chain(port.bytes()).chain([0; 4]));
    format!("{PREFIX}{:0DIGITS$x}", hash >> (64 - 4 * DIGITS))
}

/// Name of an interface of a worker's lane: of the switch, the lane's kind, and the worker, in hexadecimal.
pub fn lane(switch: &str, kind: char, worker: WorkerId) -> String {
    format!("{PREFIX}{kind}{:010x}{:02x}", fnv1a(switch.bytes().chain([0; 5])) >> 24, worker.0)
}

/// Note that a host end carries, for people and to tell whose leftover it is.
pub fn alias(switch: &str, port: &str) -> String {
    format!("lockgate {switch}/{port}")
}

/// FNV-1a of 64 bits (draft-eastlake-fnv): a hash whose values do not change with a compiler's release.
fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_and_stays_the_same_from_release_to_release() {
        assert_eq!(fnv1a(b"foobar".iter().copied()), 0x8594_4171_f739_67e8, "a vector of the draft");
        let name = host_end("sw0", "web1");
        assert_eq!(name.len(), MAX_INTERFACE_NAME);
        assert_eq!(name, format!("lg{:013x}", fnv1a(b"sw0\0web1\0\0\0\0".iter().copied()) >> 12));
    }

    #[test]
    fn lanes_of_a_switch_have_names_of_their_own() {
        let names = ['p', 't'].map(|kind| lane("sw0", kind, WorkerId(63)));
        assert!(names.iter().all(|name| name.len() == MAX_INTERFACE_NAME));
        assert_ne!(names[0], names[1]);
        assert_ne!(lane("sw0", 'p', WorkerId(0)), lane("sw1", 'p', WorkerId(0)));
    }

    #[test]
    fn switch_and_port_do_not_run_into_each_other() {
        assert_ne!(host_end("sw0", "web1"), host_end("sw0w", "eb1"));
        assert_ne!(
            host_end("sw0", "a-port-with-a-very-long-name-1"),
            host_end("sw0", "a-port-with-a-very-long-name-2")
        );
    }
}
