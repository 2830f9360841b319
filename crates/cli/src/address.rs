//! Addresses in the arguments.

use std::net::{SocketAddr, ToSocketAddrs};

/// An address with a port, or a host name with one.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected ADDR:PORT, as 127.0.0.1:6379, [::1]:6379 or localhost:6379";
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let mut found = text.to_socket_addrs().map_err(|e| format!("{e}; {expected}"))?;
    found.next().ok_or_else(|| format!("the name has no address; {expected}"))
}
