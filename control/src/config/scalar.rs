//! Single values without a unit: whole numbers, switches, names, addresses. Each reader takes the text as it was written
//! and answers with the value or says what is wrong with it.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use lockgate_dataplane::frame::mac::MacAddr;

pub use super::tree::Scalar;

/// Most bytes of a name of a switch, port, group or class: they are metric labels and appear in tables.
const NAME_MAX_BYTES: usize = 63;
/// IFNAMSIZ without its terminating zero.
const INTERFACE_NAME_MAX_BYTES: usize = 15;
/// `sun_path` without its terminating zero.
const SOCKET_PATH_MAX_BYTES: usize = 107;

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct Fault {
    /// What is wrong; quotes the value.
    pub problem: String,
    /// The way out, if the problem does not say it.
    pub help: Option<String>,
}

impl Fault {
    /// A fault without further help.
    pub fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), help: None }
    }

    /// Adds the way out.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Reads a whole number within `range`, in plain decimal digits. `0100`, `1e3`, `1_0` and `0x10` mean different numbers
/// to different YAML readers and are refused.
pub fn integer<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&Scalar) -> Result<T, Fault> {
    move |Scalar { text, .. }| {
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            let (min, max) = (range.start(), range.end());
            return Err(Fault::new(format!("`{text}` is not a whole number in decimal digits"))
                .help(format!("write a number from {min} to {max}")));
        }
        if text.len() > 1 && text.starts_with('0') {
            let decimal =
                Some(text.trim_start_matches('0')).filter(|digits| !digits.is_empty()).unwrap_or("0");
            return Err(Fault::new(format!("`{text}` is ambiguous: some YAML readers take it as octal"))
                .help(format!("write {decimal} if that is what it means")));
        }
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
            Fault::new(format!("`{text}` is out of range: {} to {}", range.start(), range.end()))
        })
    }
}

/// Reads `true` or `false`; YAML 1.1 also had yes, no, on and off, and its readers disagree about them.
pub fn boolean(Scalar { text, quoted }: &Scalar) -> Result<bool, Fault> {
    match text.as_str() {
        "true" if !quoted => Ok(true),
        "false" if !quoted => Ok(false),
        _ => Err(Fault::new(format!("`{text}` is neither true nor false"))
            .help("write `true` or `false`, without quotes")),
    }
}

/// Reads one of a few words.
pub fn word<T: Copy + 'static>(words: &'static [(&'static str, T)]) -> impl Fn(&Scalar) -> Result<T, Fault> {
    move |Scalar { text, .. }| {
        let found = words.iter().find(|(word, _)| word == text).map(|(_, value)| *value);
        found.ok_or_else(|| {
            let list: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            Fault::new(format!("`{text}` is not one of {}", list.join(", ")))
        })
    }
}

/// Reads the name of a switch, port, group or class. It is the text as written: a port called `10` or `no` is called so.
pub fn name(Scalar { text, .. }: &Scalar) -> Result<String, Fault> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let rule = "letters, digits, `-`, `_` and `.`, beginning with a letter or digit, at most 63";
    if !text.bytes().all(legal) || !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(Fault::new(format!("`{text}` is not a name")).help(format!("a name consists of {rule}")));
    }
    if text.len() > NAME_MAX_BYTES {
        return Err(
            Fault::new(format!("`{text}` is too long for a name")).help(format!("a name consists of {rule}"))
        );
    }
    Ok(text.clone())
}

/// Reads the name of a network interface. An over-long one is refused, never cut: two names may differ only in their end.
pub fn interface_name(Scalar { text, .. }: &Scalar) -> Result<String, Fault> {
    if text.len() > INTERFACE_NAME_MAX_BYTES {
        let help = format!("Linux takes at most {INTERFACE_NAME_MAX_BYTES} bytes");
        return Err(Fault::new(format!("interface name `{text}` has {} bytes", text.len())).help(help));
    }
    if let Some((name, _)) = text.split_once("@if") {
        let help = format!("`ip link` appends what follows the @; the name is `{name}`");
        return Err(Fault::new(format!("`{text}` is not an interface name")).help(help));
    }
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if text.is_empty() || !text.bytes().all(legal) || matches!(text.as_str(), "." | "..") {
        let help = "letters, digits, `-`, `_` and `.` are allowed";
        return Err(Fault::new(format!("`{text}` is not an interface name")).help(help));
    }
    if matches!(text.as_str(), "lo" | "all" | "default") {
        return Err(
            Fault::new(format!("interface name `{text}` is the kernel's own")).help("choose another name")
        );
    }
    Ok(text.clone())
}

/// Reads the address of a station: six pairs of hexadecimal digits with colons.
pub fn mac(Scalar { text, .. }: &Scalar) -> Result<MacAddr, Fault> {
    if let Ok(number) = text.parse::<u64>() {
        let fault = Fault::new(format!("`{text}` is a number, not a MAC address"));
        return Err(match base_60(number) {
            Some(mac) => fault
                .help(format!("YAML 1.1 tools read an unquoted MAC as base 60; quote the MAC: \"{mac}\"")),
            None => fault.help("quote the MAC, as in \"52:54:00:12:34:56\""),
        });
    }
    let mac: MacAddr = text.parse().map_err(|error| Fault::new(format!("`{text}`: {error}")))?;
    if mac.is_group() {
        return Err(Fault::new(format!("`{text}` is a group address: no station can send from it"))
            .help("the first octet of a station's address is even"));
    }
    if !mac.is_station() {
        return Err(Fault::new(format!("`{text}` is the null address: no station can have it"))
            .help("write the station's own address, or leave `mac` out"));
    }
    Ok(mac)
}

/// Undoes what YAML 1.1 did to an address such as 52:54:00:12:34:56, whose pairs are all decimal and below 60.
fn base_60(number: u64) -> Option<String> {
    let pairs = [5, 4, 3, 2, 1, 0].map(|power| format!("{:02}", number / 60_u64.pow(power) % 60));
    (number < 60_u64.pow(6)).then(|| pairs.join(":"))
}

/// Reads an IP address that an interface can have, with its prefix length.
pub fn interface_address(Scalar { text, .. }: &Scalar) -> Result<(IpAddr, u8), Fault> {
    let Some((address, prefix)) = text.split_once('/') else {
        return Err(if text.parse::<IpAddr>().is_ok() {
            Fault::new(format!("`{text}` has no prefix length"))
                .help(format!("write `{text}/24`, or what the network has"))
        } else {
            Fault::new(format!("`{text}` is not an IP address"))
                .help("write an address and a prefix length, such as `10.0.0.11/24`")
        });
    };
    let address: IpAddr = address.parse().map_err(|_| {
        Fault::new(format!("`{text}`: `{address}` is not an IP address"))
            .help("write an address and a prefix length, such as `10.0.0.11/24`")
    })?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let digits = prefix.bytes().all(|b| b.is_ascii_digit());
    let length = prefix.parse().ok().filter(|length| digits && (1..=longest).contains(length));
    let length: u8 = length.ok_or_else(|| {
        Fault::new(format!("`{text}`: `{prefix}` is not a prefix length"))
            .help(format!("1 to {longest} are possible"))
    })?;
    if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
        return Err(Fault::new(format!("`{text}` is not an address that a port's interface can have"))
            .help("write the address of one host, such as `10.0.0.11/24`"));
    }
    if let Some(what) = network_or_broadcast(address, length) {
        return Err(Fault::new(format!("`{text}` is the {what} address of its network, not a host's"))
            .help("write an address between the two, or correct the prefix length"));
    }
    Ok((address, length))
}

fn network_or_broadcast(address: IpAddr, prefix: u8) -> Option<&'static str> {
    let IpAddr::V4(v4) = address else { return None };
    // Networks of one or two addresses have neither (RFC 3021).
    let host_mask = u32::MAX.checked_shr(prefix.into()).filter(|mask| *mask > 1)?;
    match v4.to_bits() & host_mask {
        0 => Some("network"),
        host if host == host_mask => Some("broadcast"),
        _ => None,
    }
}

/// Reads the address and port a server listens on.
pub fn socket_address(Scalar { text, .. }: &Scalar) -> Result<SocketAddr, Fault> {
    text.parse().map_err(|_| {
        Fault::new(format!("`{text}` is not an address to listen on"))
            .help("write an IP address and a port, such as `127.0.0.1:9478` or `[::1]:9478`")
    })
}

/// Reads an absolute path.
pub fn absolute_path(Scalar { text, .. }: &Scalar) -> Result<PathBuf, Fault> {
    if !text.starts_with('/') || text.contains('\0') {
        return Err(Fault::new(format!("`{text}` is not an absolute path")).help("begin with `/`"));
    }
    Ok(PathBuf::from(text))
}

/// Reads an absolute path that a Unix socket can have.
pub fn socket_path(scalar: &Scalar) -> Result<PathBuf, Fault> {
    let path = absolute_path(scalar)?;
    let bytes = scalar.text.len();
    if bytes > SOCKET_PATH_MAX_BYTES {
        let help = format!("Linux takes at most {SOCKET_PATH_MAX_BYTES}");
        return Err(Fault::new(format!("the socket's path has {bytes} bytes")).help(help));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Scalar {
        Scalar { text: text.to_owned(), quoted: false }
    }

    fn refused<T: std::fmt::Debug>(result: Result<T, Fault>) -> String {
        let fault = result.unwrap_err();
        format!("{}; {}", fault.problem, fault.help.unwrap_or_default())
    }

    #[test]
    fn numbers_that_yaml_readers_disagree_about_are_refused() {
        let vlan = integer::<u16>(1..=4094);
        assert_eq!(vlan(&plain("10")), Ok(10));
        assert!(refused(vlan(&plain("0100"))).contains("octal; write 100"));
        assert!(refused(vlan(&plain("00"))).contains("write 0 "));
        for text in ["1_0", "0x10", "0o10", "1e3", "1.0", "-1", "+1", "", "ten", "~"] {
            assert!(refused(vlan(&plain(text))).contains("not a whole number"), "{text}");
        }
        for text in ["0", "4095", "70000", "99999999999999999999999"] {
            assert!(refused(vlan(&plain(text))).contains("out of range: 1 to 4094"), "{text}");
        }
    }

    #[test]
    fn only_true_and_false_are_switches() {
        assert_eq!((boolean(&plain("true")), boolean(&plain("false"))), (Ok(true), Ok(false)));
        for text in ["yes", "no", "on", "off", "True", "1", ""] {
            assert!(boolean(&plain(text)).is_err(), "{text}");
        }
        assert!(boolean(&Scalar { text: "true".to_owned(), quoted: true }).is_err());
    }

    #[test]
    fn a_name_is_what_was_written() {
        for text in ["web1", "10", "1e2", "no", "a-b_c.d"] {
            assert_eq!(name(&plain(text)).as_deref(), Ok(text));
        }
        for text in ["", "-a", "a b", "a/b", "é", "{a}"] {
            assert!(name(&plain(text)).is_err(), "{text}");
        }
        assert!(name(&plain(&"a".repeat(63))).is_ok());
        assert!(name(&plain(&"a".repeat(64))).is_err());
    }

    #[test]
    fn interface_names_are_never_cut() {
        assert!(interface_name(&plain("abcdefghijklmno")).is_ok());
        assert!(
            refused(interface_name(&plain("abcdefghijklmnop")))
                .contains("has 16 bytes; Linux takes at most 15")
        );
        assert!(refused(interface_name(&plain("eth0@if3"))).contains("the name is `eth0`"));
        for text in ["", ".", "..", "../x", "a b", "a:b", "tap%d", "ü0", "lo", "all"] {
            assert!(interface_name(&plain(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn a_mac_that_became_a_number_is_named_again() {
        assert!(refused(mac(&plain("41135085296"))).contains("quote the MAC: \"52:54:00:12:34:56\""));
        assert!(refused(mac(&plain("99999999999999"))).contains("quote the MAC"));
        assert_eq!(mac(&plain("52:54:00:AB:CD:EF")), Ok(MacAddr([0x52, 0x54, 0, 0xab, 0xcd, 0xef])));
        for text in ["0:1:2:3:4:5", "aa-bb-cc-dd-ee-ff", "aabb.ccdd.eeff", "52:54:00:12:34"] {
            assert!(refused(mac(&plain(text))).contains("six pairs"), "{text}");
        }
        assert!(refused(mac(&plain("01:00:5e:00:00:01"))).contains("group address"));
        assert!(refused(mac(&plain("ff:ff:ff:ff:ff:ff"))).contains("group address"));
        assert!(refused(mac(&plain("00:00:00:00:00:00"))).contains("null address"));
    }

    #[test]
    fn an_interface_address_is_a_host_with_a_prefix() {
        for text in ["10.0.0.11/24", "10.0.0.0/31", "10.0.0.1/32", "fd00::1/64", "0.0.0.1/1"] {
            assert!(interface_address(&plain(text)).is_ok(), "{text}");
        }
        assert!(refused(interface_address(&plain("10.0.0.11"))).contains("write `10.0.0.11/24`"));
        for (text, why) in [
            ("10.0.0/24", "is not an IP address"),
            ("10.0.0.11/33", "`33` is not a prefix length"),
            ("10.0.0.11/0", "is not a prefix length"),
            ("10.0.0.11/+4", "is not a prefix length"),
            ("10.0.0.11/", "is not a prefix length"),
            ("fd00::1/129", "is not a prefix length"),
            ("10.0.0.0/24", "network address"),
            ("10.0.0.255/24", "broadcast address"),
            ("224.0.0.1/24", "can have"),
            ("127.0.0.1/8", "can have"),
            ("::/64", "can have"),
        ] {
            assert!(refused(interface_address(&plain(text))).contains(why), "{text}");
        }
    }

    #[test]
    fn servers_listen_on_addresses_and_sockets_have_short_absolute_paths() {
        assert!(socket_address(&plain("[::1]:9478")).is_ok());
        assert!(socket_address(&plain("localhost:9478")).is_err());
        assert!(socket_path(&plain("/run/lockgate/lockgate.sock")).is_ok());
        assert!(socket_path(&plain("run/lockgate.sock")).is_err());
        assert!(socket_path(&plain(&format!("/{}", "a".repeat(107)))).is_err());
    }
}
