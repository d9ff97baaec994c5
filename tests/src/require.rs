//! The gate in front of a ring of tests that not every machine can run.
//!
//! Where a ring cannot run its tests pass, after they printed why. So that nobody takes that for a success, the
//! environment variable `LOCKGATE_REQUIRE_RINGS` (names, separated by commas) turns a skip into a failure.

/// The variable with the names of the rings that must run.
pub const REQUIRED_RINGS: &str = "LOCKGATE_REQUIRE_RINGS";

/// Whether the tests of `ring`, which need root, can run.
///
/// # Panics
/// If they cannot and the ring is required.
#[must_use]
pub fn root(ring: &str) -> bool {
    let obstacle = (!nix::unistd::geteuid().is_root()).then_some("it needs root");
    ring_can_run(ring, obstacle)
}

/// Whether the tests of `ring` can run: if nothing is in their way. Prints what is.
///
/// # Panics
/// If they cannot and the ring is required.
#[must_use]
pub fn ring_can_run(ring: &str, obstacle: Option<&str>) -> bool {
    let Some(reason) = obstacle else { return true };
    let required = std::env::var(REQUIRED_RINGS).unwrap_or_default();
    assert!(!is_listed(ring, &required), "{REQUIRED_RINGS} lists {ring}, which cannot run: {reason}");
    eprintln!("SKIP {ring}: {reason}");
    false
}

fn is_listed(ring: &str, list: &str) -> bool {
    list.split(',').any(|name| name.trim() == ring)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_whole_rings() {
        assert!(is_listed("netns", "bpf_prog_run, netns"));
        assert!(!is_listed("netns", "") && !is_listed("netns", "netns_tcp,bpf_prog_run"));
    }

    #[test]
    fn nothing_in_the_way_is_no_skip() {
        assert!(ring_can_run("anything", None));
    }
}
