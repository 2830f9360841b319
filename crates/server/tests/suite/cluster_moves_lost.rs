//! Moves of slots of which a side, or a message, gets lost: one end is played by the test.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use tembo_wire::{Limits, Parsed, RequestParser};

use crate::cluster_moves::field;
use crate::cluster_support::{node, node_id, set_nodes};
use crate::support::{Client, Fixture, eventually};

/// The answers of a target: to commands with keys, to COMMIT and to ASK. None: it hangs up; empty: none yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) data: Option<&'static str>,
    pub(crate) commit: Option<&'static str>,
    pub(crate) ask: Option<&'static str>,
    pub(crate) asked: u64,
    /// Commands with keys.
    pub(crate) received: u64,
}

/// A node that answers as a test wants it to.
pub(crate) struct Target {
    port: u16,
    answers: Arc<Mutex<Answers>>,
}

impl Target {
    pub(crate) fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers = Arc::new(Mutex::new(answers));
        let shared = answers.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = shared.clone();
                std::thread::spawn(move || drop(serve(stream.unwrap(), &shared)));
            }
        });
        Target { port, answers }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Answers)) {
        change(&mut self.answers.lock().unwrap());
    }

    pub(crate) fn asked(&self) -> u64 {
        self.answers.lock().unwrap().asked
    }
}

fn serve(mut stream: TcpStream, answers: &Mutex<Answers>) -> std::io::Result<()> {
    let (mut parser, mut input) = (RequestParser::new(), Vec::new());
    loop {
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            count => input.extend_from_slice(&chunk[..count]),
        }
        while let Ok(Parsed::Request(request)) = parser.parse(&input, &Limits::default()) {
            let word = request.get(2).filter(|_| request.name() == b"CLUSTERX").map(<[u8]>::to_vec);
            let consumed = request.consumed();
            input.drain(..consumed);
            let mut answers = answers.lock().unwrap();
            let reply = match word.as_deref() {
                Some(b"BEGIN") => Some("+OK"),
                Some(b"READY") => Some(":1"),
                Some(b"COMMIT") => answers.commit,
                Some(b"ASK") => {
                    answers.asked += 1;
                    answers.ask
                }
                _ => {
                    answers.received += 1;
                    answers.data
                }
            };
            drop(answers);
            let Some(reply) = reply else { return Ok(()) };
            if reply.is_empty() {
                continue;
            }
            stream.write_all(format!("{reply}\r\n").as_bytes())?;
        }
    }
}

/// The id of a move of a source that a test plays.
pub(crate) fn source_id(number: usize) -> String {
    format!("{number:040}")
}

pub(crate) fn line(number: usize, port: u16, slots: &str) -> String {
    format!("{} 127.0.0.1 {port} master - {slots}\n", node_id(number))
}

/// A node that has all slots, and another one that the test plays.
fn source_of(target: &Target) -> (Fixture, String) {
    let server = node();
    let topology = line(0, server.address.port(), "0-16383") + &line(1, target.port, "");
    assert_eq!(set_nodes(&mut server.client(), &topology, 1), "+OK");
    (server, topology)
}

fn migrate(client: &mut Client) {
    client.talk("SET b 1 => +OK\nSET c 2 => +OK");
    assert_eq!(client.ask(&format!("CLUSTERX MIGRATE 3300 {}", node_id(1))), "+OK");
}

fn state(client: &mut Client) -> String {
    field(client, "migrating_state").unwrap()
}

pub(crate) const DOUBTFUL: &str = "-TRYAGAIN The slot is being moved to another node; try again";

#[test]
fn a_source_in_doubt_serves_nothing_and_asks_until_it_knows() {
    for (answer, is_handed) in [("+never", false), (":1", true)] {
        let target = Target::start(Answers { data: Some("+OK"), ask: Some("+newer"), ..Answers::default() });
        let (mut server, _) = source_of(&target);
        migrate(&mut server.client());
        eventually(|| target.asked() > 0);
        for round in 0..2 {
            let mut client = server.client();
            client.talk(&format!(
                "
                GET b => {DOUBTFUL}
                SET b 1 => {DOUBTFUL}
                EVAL 'return 1' 1 b => {DOUBTFUL}
                FLUSHALL => {DOUBTFUL}
                CLUSTER RESET => -ERR CLUSTER RESET can't be called with nodes that contain keys
                GET c => $2
                SET c 2 => +OK
                CLUSTERX MIGRATE 3301 {} => -ERR There is already a migrating job
                ",
                node_id(1)
            ));
            assert_eq!(state(&mut client), "start", "round {round}");
            if round == 0 {
                // It remembers, and asks again.
                server.restart();
                let asked = target.asked();
                eventually(|| target.asked() > asked);
            }
        }
        target.set(|answers| answers.ask = Some(answer));
        let mut client = server.client();
        let ended = if is_handed { "success" } else { "fail" };
        eventually(|| state(&mut client) == ended);
        match is_handed {
            true => {
                client.talk(&format!("GET b => -MOVED 3300 127.0.0.1:{}", target.port));
                eventually(|| client.ask("DBSIZE") == ":1");
            }
            false => client.talk("GET b => $1\nSET b 2 => +OK\nDBSIZE => :2"),
        }
        server.restart();
        assert_eq!(state(&mut server.client()), ended);
        server.check();
    }
}

#[test]
fn a_pushed_topology_decides_for_a_target_that_never_returns() {
    let target = Target::start(Answers { data: Some("+OK"), ..Answers::default() });
    let (server, topology) = source_of(&target);
    let mut client = server.client();
    migrate(&mut client);
    eventually(|| target.asked() > 0);
    // A newer one in which all is as before says nothing.
    assert_eq!(set_nodes(&mut client, &topology, 2), "+OK");
    client.talk(&format!("GET b => {DOUBTFUL}"));
    let own = line(0, server.address.port(), "0-16383");
    let failed = own.clone() + &line(1, target.port, "").replace("master", "master,fail");
    // Nor does one in which the target has failed, or that lacks it: it may have the slot, and come back.
    for (version, lost) in [(3, &failed), (4, &own)] {
        assert_eq!(set_nodes(&mut client, lost, version), "+OK");
        client.talk(&format!("GET b => {DOUBTFUL}"));
    }
    assert_eq!(client.ask(&format!("CLUSTERX SETNODES '{own}' 5 FORCE")), "+OK");
    client.talk("GET b => $1\nSET b 2 => +OK\nDBSIZE => :2");
    assert_eq!(state(&mut client), "fail");
    // Or one says whose the slot is.
    for (version, decision) in [
        (6, format!("CLUSTERX SETSLOT 3300 NODE {} 7", node_id(0))),
        (8, format!("CLUSTERX SETNODES '{topology}' 8 FORCE")),
    ] {
        assert_eq!(set_nodes(&mut client, &topology, version), "+OK");
        let asked = target.asked();
        migrate(&mut client);
        eventually(|| target.asked() > asked);
        client.talk(&format!("GET b => {DOUBTFUL}"));
        assert_eq!(client.ask(&decision), "+OK");
        client.talk("GET b => $1");
    }
    // The keys stay where a topology, and not the target, gave the slot to the target.
    let asked = target.asked();
    migrate(&mut client);
    eventually(|| target.asked() > asked);
    let moved = line(0, server.address.port(), "0-3299 3301-16383") + &line(1, target.port, "3300");
    assert_eq!(set_nodes(&mut client, &moved, 9), "+OK");
    client.talk(&format!("GET b => -MOVED 3300 127.0.0.1:{}\nDBSIZE => :2", target.port));
    server.check();
}

#[test]
fn a_source_lets_nobody_decide_while_its_replica_is_away() {
    let target = Target::start(Answers { data: Some("+OK"), commit: Some(":1"), ..Answers::default() });
    let (server, topology) = source_of(&target);
    let replica = |role: &str| format!("{topology}{} 127.0.0.1 2 {role} {}\n", node_id(2), node_id(0));
    let mut client = server.client();
    assert_eq!(set_nodes(&mut client, &replica("slave"), 2), "+OK");
    migrate(&mut client);
    std::thread::sleep(std::time::Duration::from_millis(600));
    assert_eq!(state(&mut client), "start");
    eventually(|| client.ask("SET b 2") == "+OK");
    assert_eq!(target.asked(), 0);
    // A replica that has failed is not waited for.
    assert_eq!(set_nodes(&mut client, &replica("slave,fail"), 3), "+OK");
    eventually(|| state(&mut client) == "success");
    server.check();
}

#[test]
fn slots_that_are_being_moved_are_not_flushed() {
    let target = Target::start(Answers { data: Some(""), ..Answers::default() });
    let (server, _) = source_of(&target);
    let mut client = server.client();
    migrate(&mut client);
    // While the slots take no writes it is to be tried again.
    for slots in ["3300", "0-16383"] {
        let refused = "-ERR some of these slots are being moved";
        eventually(|| client.ask(&format!("CLUSTERX FLUSHSLOTS {slots}")) == refused);
    }
    eventually(|| client.ask("CLUSTERX FLUSHSLOTS 3299 3301") == "+OK");
    client.talk("GET b => $1");
    server.check();
}

#[test]
fn a_move_fails_before_the_hand_over_and_all_is_as_before() {
    let target = Target::start(Answers { data: Some("-OOM the pool is full"), ..Answers::default() });
    let (mut server, _) = source_of(&target);
    let mut client = server.client();
    client.talk("SET b 1 => +OK");
    let line = format!("CLUSTERX MIGRATE 3300 {} SYNC 60", node_id(1));
    let full = "-ERR the slots were not moved: the target answered: OOM the pool is full";
    assert_eq!(client.ask(&line), full);
    client.talk("SET b 2 => +OK\nFLUSHALL => +OK");
    // All keys are removed while the target is slow.
    target.set(|answers| answers.data = Some(""));
    migrate(&mut client);
    assert_eq!(state(&mut client), "start");
    eventually(|| client.ask("SET b 3") == "+OK");
    let received = || target.answers.lock().unwrap().received;
    // The first was that of the move before.
    eventually(|| received() > 1);
    eventually(|| {
        client.ask("FLUSHALL");
        state(&mut client) == "fail"
    });
    // The source is restarted meanwhile.
    migrate(&mut client);
    server.restart();
    let mut client = server.client();
    assert_eq!(state(&mut client), "fail");
    client.talk("SET b 4 => +OK\nGET b => $4\nDBSIZE => :2");
    assert_eq!(target.asked(), 0);
    server.check();
}

/// A node without slots, and a connection that plays the source, which has them all.
fn target_node() -> (Fixture, String) {
    let server = node();
    let topology = line(0, 1, "0-16383") + &line(1, server.address.port(), "");
    assert_eq!(set_nodes(&mut server.client(), &topology, 1), "+OK");
    (server, topology)
}

fn begin(server: &Fixture, number: usize) -> Client {
    let (mut source, id) = (server.client(), source_id(number));
    let begin = format!("CLUSTERX IMPORT BEGIN {id} {} {} 3300", node_id(0), node_id(1));
    eventually(|| !source.ask(&begin).starts_with("-TRYAGAIN"));
    source.talk("SET b 1 => +OK\nRPUSH {b}list 1 2 => :2\nSET c 1 => -ERR The slot is not being imported by this connection");
    source
}

#[test]
fn an_import_that_ends_early_leaves_nothing() {
    let (mut server, topology) = target_node();
    let mut client = server.client();
    let busy = "-TRYAGAIN The slot is being moved to another node; try again";
    let source = begin(&server, 1);
    client.talk(&format!(
        "
        GET b => -MOVED 3300 127.0.0.1:1
        DBSIZE => :2
        FLUSHALL => {busy}
        TEMBO.UNLINK * => {busy}
        CLUSTERX FLUSHSLOTS 3300 => {busy}
        CLUSTERX IMPORT BEGIN {:040} {} {} 3301 => -ERR There is already an importing job
        CLUSTERX IMPORT COMMIT {:040} => -ERR there is no such import
        ",
        2,
        node_id(0),
        node_id(1),
        2
    ));
    assert_eq!(field(&mut client, "import_state").as_deref(), Some("start"));
    drop(source);
    eventually(|| client.ask("DBSIZE") == ":0");
    assert_eq!(field(&mut client, "import_state").as_deref(), Some("error"));
    // The node is restarted.
    let source = begin(&server, 3);
    server.restart();
    drop(source);
    let mut client = server.client();
    eventually(|| client.ask("DBSIZE") == ":0");
    client.talk(&format!("CLUSTERX IMPORT COMMIT {:040} => -ERR there is no such import", 3));
    // The source asks on another connection: the answer holds.
    let mut source = begin(&server, 4);
    let asked = format!("CLUSTERX IMPORT ASK {:040} {} {} 3300 1", 4, node_id(0), node_id(1));
    client.talk(&format!("{asked} => +never"));
    source.talk(&format!(
        "SET b 2 => -ERR The slot is not being imported by this connection
         CLUSTERX IMPORT COMMIT {:040} => -ERR there is no such import",
        4
    ));
    // The topology gives the slot to a third.
    let source = begin(&server, 5);
    let third = topology.replace("0-16383", "0-3299 3301-16383") + &line(2, 2, "3300");
    assert_eq!(set_nodes(&mut client, &third, 2), "+OK");
    eventually(|| client.ask("DBSIZE") == ":0");
    client.talk(&format!("{asked} => +newer"));
    drop(source);
    server.check();
}

#[test]
fn an_import_that_is_committed_serves_and_stays_so() {
    let (mut server, topology) = target_node();
    let mut source = begin(&server, 1);
    // The source's clock counts: the key has expired here, and a count goes on from what it is there.
    source.talk("SET {b}count 5 PXAT 1000 => +OK\nINCR {b}count => :6\nPERSIST {b}count => :1");
    let commit = format!("CLUSTERX IMPORT COMMIT {:040}", 1);
    let asked = format!("CLUSTERX IMPORT ASK {:040} {} {} 3300 1", 1, node_id(0), node_id(1));
    source.talk(&format!("{commit} => :1\n{commit} => :1\nGET b => $1"));
    for _ in 0..2 {
        let mut client = server.client();
        client.talk(&format!(
            "GET b => $1\nGET {{b}}count => $6\nGET c => -MOVED 7365 127.0.0.1:1\n{asked} => :1"
        ));
        server.restart();
    }
    let mut client = server.client();
    // A topology that does not know of the move changes nothing; one that does ends the record.
    assert_eq!(set_nodes(&mut client, &topology, 2), "+OK");
    client.talk("SET b 2 => +OK");
    let known = line(0, 1, "0-3299 3301-16383") + &line(1, server.address.port(), "3300");
    assert_eq!(set_nodes(&mut client, &known, 3), "+OK");
    client.talk(&format!("SET b 3 => +OK\n{asked} => :1"));
    // The slot is taken away again.
    assert_eq!(set_nodes(&mut client, &topology, 4), "+OK");
    client.talk(&format!("SET b 4 => -MOVED 3300 127.0.0.1:1\n{asked} => +newer"));
    // Keys of another time go before new ones come.
    let mut source = begin(&server, 2);
    source.talk("DBSIZE => :2");
    server.check();
}
