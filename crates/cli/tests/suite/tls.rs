//! TLS by the commands of its guide, as they stand there.

use crate::serve::Server;
use crate::support::Workspace;
use std::net::TcpListener;
use std::process::{Command, Stdio};

const GUIDE: &str = include_str!("../../../../docs/guide/tls.md");

/// The blocks of commands of the guide, with a port that is free.
fn blocks(port: u16) -> Vec<String> {
    let parts = GUIDE.split("```sh\n").skip(1).map(|part| part.split("```").next().unwrap());
    parts.map(|block| block.replace("6380", &port.to_string())).collect()
}

fn shell(workspace: &Workspace, block: &str) -> (bool, String) {
    let script = format!("set -e\n{block}");
    let output = Command::new("sh").args(["-c", &script]).current_dir(workspace.path("")).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn has(program: &str, argument: &str) -> bool {
    let run = Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = run.is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("skipped: there is no {program}");
    }
    is_there
}

#[test]
fn the_commands_of_the_guide_lead_to_a_first_set() {
    if !has("openssl", "version") || !has("redis-cli", "--version") {
        return;
    }
    let workspace = Workspace::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let [prepare, serve, client] = &blocks(port)[..] else { panic!("the guide has other blocks") };
    let (is_done, text) = shell(&workspace, prepare);
    assert!(is_done, "{text}");
    let mut command = workspace.command(serve.strip_prefix("tembo ").unwrap());
    let server = Server::spawn(command.stderr(Stdio::piped()));
    assert_eq!(server.port, port, "there is a plain port: {}", server.greeting);
    let (is_done, text) = shell(&workspace, client);
    assert!(is_done && text == "OK\nhello\n", "{text}");
    // Without the password, and without a certificate.
    let without = client.replace("export REDISCLI_AUTH=a-long-password", "");
    assert!(shell(&workspace, &without).1.contains("NOAUTH"));
    let stranger = client.replace("--cert client.pem --key client.key", "");
    assert!(!shell(&workspace, &stranger).1.contains("hello"));
    server.kill();
    workspace.run("check tembo.pool").ok();
}

#[test]
fn options_of_tls_are_proved_before_a_pool_is_made() {
    let workspace = Workspace::new();
    let serve = "serve --listen 127.0.0.1:0 --tls-port 6380";
    workspace.run(serve).ends_with(2, "no tls-cert-file");
    std::fs::write(workspace.path("key"), "-----BEGIN ENCRYPTED PRIVATE KEY-----\n").unwrap();
    let files = "--tls-cert-file cert --tls-key-file key --tls-auth-clients no";
    workspace.run(&format!("{serve} {files}")).ends_with(2, "cert: No such file");
    workspace.run(&format!("{serve} --tls-auth-clients maybe")).ends_with(2, "optional");
    let plain = "serve --listen 127.0.0.1:0";
    workspace.run(&format!("{plain} {files}")).ends_with(2, "without --tls-port");
    workspace.run(&format!("{plain} --tls-key-file key")).ends_with(2, "without --tls-port");
    workspace.run(&format!("{plain} {files} --tls-replication yes")).ends_with(2, "tls-ca-cert-file");
    assert_eq!(workspace.names(), ["key"]);
}
