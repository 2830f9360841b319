//! `tembo serve` as it is watched: metrics and their address.

use crate::serve::Server;
use crate::support::Workspace;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// The body of a page, and its status line.
pub(crate) fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// Where the metrics of a server are, by its greeting.
pub(crate) fn address_of(server: &Server) -> String {
    let line = server.greeting.lines().find_map(|line| line.trim().strip_prefix("metrics")).unwrap();
    line.trim().strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap().to_owned()
}

#[test]
fn metrics_are_where_the_greeting_says() {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool a.pool --metrics 127.0.0.1:0");
    server.ask("SET a 1", "+OK\r\n");
    let address = address_of(&server);
    let (status, text) = get(&address, "/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(text.contains("\ntembo_commands_total{command=\"set\"} 1\n"), "{text}");
    server.stop();
    assert!(TcpStream::connect(&address).is_err(), "the endpoint outlives the server");
    std::fs::write(workspace.path("conf"), format!("metrics {address}\n")).unwrap();
    let server = Server::start(&workspace, "--pool a.pool --config conf");
    assert_eq!(address_of(&server), address);
    server.stop();
}

#[test]
fn wrong_addresses_of_metrics_are_told_before_a_pool_is_made() {
    let workspace = Workspace::new();
    let serve = |options: &str| workspace.run(&format!("serve --listen 127.0.0.1:0 --pool a.pool {options}"));
    serve("--metrics 0.0.0.0:0").ends_with(2, "--metrics-public lets them be read there");
    serve("--metrics 9122").ends_with(2, "127.0.0.1");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap();
    serve(&format!("--metrics {taken}")).fails_with("choose another address with --metrics");
    assert!(!workspace.path("a.pool").exists(), "a pool was made for nothing");
}
