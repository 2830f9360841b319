//! `tembo top`: a running server, watched over Redis's protocol.
//!
//! `client` talks to it, `sample` is what it said at one moment, `report` is what happened between two of
//! them, and `screen` shows that on a terminal.

mod client;
mod report;
mod sample;
mod screen;

use crate::address::listen_address;
use crate::failure::{Failure, Outcome};
use crate::report::print;
use clap::Args;
use client::{Client, Place};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use report::Report;
use sample::Sample;
pub(crate) use screen::ask_password;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// `tembo top`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo top
  tembo top 10.0.0.5:6379 --user watcher --askpass
  tembo top --unixsocket /run/tembo.sock --interval 0.5
  tembo top --once
  tembo top --batch 60 --interval 10 >> top.log

Shows what happened in each interval: commands by name with their latencies, commits, space by kind, how far the \
device is behind, clients and replication. `q` ends it. A server that goes away is asked again and again.

The password is in TEMBO_PASSWORD, or --askpass asks for it. A user needs `+info +latency +slowlog`; without the last \
two, percentiles and slow commands are left out.")]
pub(crate) struct Top {
    /// The server
    #[arg(value_name = "ADDR:PORT", default_value = "127.0.0.1:6379", value_parser = listen_address)]
    address: SocketAddr,
    /// The server's socket of the file system, instead of an address
    #[arg(long, value_name = "PATH", conflicts_with = "address")]
    unixsocket: Option<PathBuf>,
    /// The user; the default one if it is left out
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Ask for the password
    #[arg(long)]
    askpass: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Print one report, of one interval, as text
    #[arg(long, conflicts_with = "batch")]
    once: bool,
    /// Print this many reports as text
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    batch: Option<u64>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected seconds, as 1 or 0.5".to_owned())?;
    if !(0.1..=3600.0).contains(&seconds) {
        return Err("expected 0.1 to 3600 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Watches a server until the user has enough.
pub(crate) fn run(top: &Top) -> Outcome {
    let batch = if top.once { Some(1) } else { top.batch };
    if batch.is_none() && !std::io::stdout().is_terminal() {
        let why = "standard output is no terminal; --once and --batch N print text";
        return Err(Failure::Usage(why.to_owned()));
    }
    let mut watcher = Watcher::new(top)?;
    match batch {
        Some(count) => print_reports(&mut watcher, count),
        None => show_reports(&mut watcher),
    }
}

/// Takes samples of one server.
struct Watcher {
    place: Place,
    user: Option<String>,
    password: Option<String>,
    interval: Duration,
    client: Option<Client>,
    before: Option<Sample>,
}

impl Watcher {
    fn new(top: &Top) -> Outcome<Watcher> {
        let place = top.unixsocket.clone().map_or(Place::Ip(top.address), Place::Unix);
        let password = match top.askpass {
            true => Some(ask_password().map_err(Failure::during("reading the password"))?),
            false => std::env::var("TEMBO_PASSWORD").ok().filter(|password| !password.is_empty()),
        };
        if top.user.is_some() && password.is_none() {
            return Err(Failure::Usage("--user needs a password: TEMBO_PASSWORD or --askpass".to_owned()));
        }
        let (user, interval) = (top.user.clone(), top.interval);
        Ok(Watcher { place, user, password, interval, client: None, before: None })
    }

    /// The changes since the look before; none with the first one.
    fn look(&mut self) -> Result<Option<Report>, String> {
        let taken = self.sample();
        let after = taken.inspect_err(|_| (self.client, self.before) = (None, None))?;
        let report = self.before.as_ref().map(|before| Report::between(&self.place, before, &after));
        self.before = Some(after);
        Ok(report)
    }

    fn sample(&mut self) -> Result<Sample, String> {
        let client = match &mut self.client {
            Some(client) => client,
            none => {
                let mut client = Client::connect(&self.place).map_err(|e| e.about(&self.place))?;
                if let Some(password) = &self.password {
                    client.authenticate(self.user.as_deref(), password).map_err(|e| e.about(&self.place))?;
                }
                none.insert(client)
            }
        };
        Sample::take(client).map_err(|error| error.about(&self.place))
    }
}

/// Prints reports. A server that cannot be reached at the beginning is a failure. If the connection is lost
/// later, it is made again; it is a failure if that does not succeed.
fn print_reports(watcher: &mut Watcher, count: u64) -> Outcome {
    watcher.look().map_err(Failure::Failed)?;
    let mut outcome = Ok(());
    for number in 0..count {
        std::thread::sleep(watcher.interval);
        if number > 0 {
            print("\n")?;
        }
        outcome = match watcher.look() {
            Ok(Some(report)) => print(&report.text()),
            // The server has come back, and the next report has something to tell.
            Ok(None) => print("connected again\n"),
            Err(error) => print(&format!("{error}\n")).and(Err(Failure::Failed(error))),
        };
        if let Err(Failure::OutputClosed) = outcome {
            return outcome;
        }
    }
    outcome
}

/// Shows reports on the terminal until a key ends it.
fn show_reports(watcher: &mut Watcher) -> Outcome {
    let first = watcher.look();
    let mut terminal = ratatui::try_init().map_err(Failure::during("opening the terminal"))?;
    let mut shown = match first {
        Ok(_) => Err("the first interval is not over yet".to_owned()),
        Err(error) => Err(format!("{error}; trying again")),
    };
    let outcome = loop {
        if let Err(error) = terminal.draw(|frame| screen::draw(frame, &shown)) {
            break Err(error);
        }
        match wait_for_end(watcher.interval) {
            Ok(false) => {}
            Ok(true) => break Ok(()),
            Err(error) => break Err(error),
        }
        shown = match watcher.look() {
            Ok(Some(report)) => Ok(report),
            Ok(None) => Err("connected; the first interval is not over yet".to_owned()),
            Err(error) => Err(format!("{error}; trying again")),
        };
    };
    ratatui::restore();
    outcome.map_err(Failure::during("the terminal"))
}

/// Waits for the next look. Returns whether a key asked for the end. If the terminal changes its size, the
/// screen is drawn again at once.
fn wait_for_end(interval: Duration) -> std::io::Result<bool> {
    let deadline = Instant::now() + interval;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !event::poll(left)? {
            return Ok(false);
        }
        match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Press => {
                let is_control_c =
                    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
                if is_control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(true);
                }
            }
            Event::Resize(..) => return Ok(false),
            _ => {}
        }
    }
}
