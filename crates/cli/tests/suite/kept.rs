//! Replaced data that are kept, through kill -9.

use crate::backup::{contents, write_some};
use crate::replica::Client;
use crate::serve::Server;
use crate::support::Workspace;

#[test]
fn what_was_flushed_and_what_came_back_survive_kill_9() {
    let workspace = Workspace::new();
    let mut server = Server::start(&workspace, "--pool a.pool");
    Client::connect(server.port).unwrap().line("CONFIG SET flush-grace 1h");
    for round in 0..6 {
        write_some(server.port, round, 400);
        let before = contents(server.port);
        let mut client = Client::connect(server.port).unwrap();
        client.line(if round % 2 == 0 { "FLUSHALL" } else { "FLUSHDB" });
        client.line(&format!("SET meanwhile {round}"));
        server.kill();
        workspace.run("check a.pool").ok();
        server = Server::start(&workspace, "--pool a.pool");
        let mut client = Client::connect(server.port).unwrap();
        assert_eq!(contents(server.port).len(), 1);
        client.line("CONFIG SET flush-grace 1h");
        client.line("TEMBO.UNFLUSH");
        server.kill();
        workspace.run("check a.pool").ok();
        server = Server::start(&workspace, "--pool a.pool");
        Client::connect(server.port).unwrap().line("CONFIG SET flush-grace 1h");
        assert_eq!(contents(server.port), before);
    }
    server.kill();
}
