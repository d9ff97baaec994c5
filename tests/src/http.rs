//! As much of an HTTP client as the tests need.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::netns::Netns;

const LIMIT: Duration = Duration::from_secs(5);

/// The body behind `http://ADDRESS PATH`, asked for from inside `netns`.
///
/// # Panics
/// If there is no answer, or another one than 200.
#[track_caller]
pub fn get(netns: &Netns, address: &str, path: &str) -> String {
    try_get(netns, address, path).unwrap_or_else(|error| panic!("http://{address}{path}: {error}"))
}

/// As [`get`], with the reason why there is no body.
///
/// # Errors
/// If there is no answer, or another one than 200.
pub fn try_get(netns: &Netns, address: &str, path: &str) -> Result<String, String> {
    let exchange = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(LIMIT))?;
        // 1.0: the body ends with the connection.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = netns.inside(exchange).map_err(|error| error.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer has no end of headers")?;
    if head.split(' ').nth(1) == Some("200") { Ok(body.to_owned()) } else { Err(head.to_owned()) }
}

/// Encodes a value of a query.
pub fn encode(value: &str) -> String {
    value
        .bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            },
        )
        .collect()
}
