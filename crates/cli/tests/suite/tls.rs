//! TLS by the commands of its guide, as they stand there.
//!
//! `TEMBO_INSTALL=1 cargo test -p tembo-cli --test suite guide` installs the command as well, which takes
//! minutes; else the one of the tests is where it would be.

use crate::serve::Server;
use crate::support::Workspace;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

const GUIDE: &str = include_str!("../../../../docs/guide/tls.md");

/// The blocks of commands of the guide, with a port that is free.
fn blocks(port: u16) -> Vec<String> {
    let parts = GUIDE.split("```sh\n").skip(1).map(|part| part.split("```").next().unwrap());
    parts.map(|block| block.replace("6380", &port.to_string())).collect()
}

/// A shell that finds the command `tembo` in the workspace.
fn shell_of(workspace: &Workspace, script: &str) -> Command {
    let path = format!("{}:{}", workspace.path("root/bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(workspace.path("")).env("PATH", path);
    command
}

/// Installs the command into the workspace.
fn install(workspace: &Workspace, block: &str) {
    let root = workspace.path("root");
    if std::env::var_os("TEMBO_INSTALL").is_none() {
        std::fs::create_dir_all(root.join("bin")).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tembo"), root.join("bin/tembo")).unwrap();
        return;
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new("sh");
    command.args(["-c", block]).current_dir(sources).env("CARGO_INSTALL_ROOT", root);
    // Those of the tests must not decide how it is built.
    command.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
    assert!(command.status().unwrap().success(), "{block}");
}

fn shell(workspace: &Workspace, block: &str) -> (bool, String) {
    let output = shell_of(workspace, &format!("set -e\n{block}")).output().unwrap();
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
    let [installing, prepare, serve, client] = &blocks(port)[..] else {
        panic!("the guide has other blocks")
    };
    install(&workspace, installing);
    let (is_done, text) = shell(&workspace, prepare);
    assert!(is_done, "{text}");
    let server = Server::spawn(shell_of(&workspace, &format!("exec {serve}")).stderr(Stdio::piped()));
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
