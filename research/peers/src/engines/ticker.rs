//! A thread that does something in intervals: it syncs databases whose writes do not wait for that.

use super::{Result, Setup};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tembo_pmem::Durability;

/// The thread. It ends when this is dropped.
pub(super) struct Ticker {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Calls `tick` after each interval, until it fails.
    pub(super) fn start(
        every: Duration,
        mut tick: impl FnMut() -> Result<()> + Send + 'static,
    ) -> Result<Ticker> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("sync".to_owned()).spawn(move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                if let Err(e) = tick() {
                    eprintln!("the thread that syncs: {e}");
                    return;
                }
            }
        })?;
        Ok(Ticker { stop: Some(stop), thread: Some(thread) })
    }

    /// Fails if the thread has failed.
    pub(super) fn check(&self) -> Result<()> {
        match self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            true => Ok(()),
            false => Err("the thread that syncs has ended".into()),
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop = None;
        // A thread that panicked has said so.
        self.thread.take().into_iter().for_each(|thread| _ = thread.join());
    }
}

/// The interval of `relaxed`.
pub(super) fn interval(setup: &Setup<'_>) -> Result<Duration> {
    match setup.durability {
        Durability::Relaxed { interval_ms } => Ok(Duration::from_millis(interval_ms.into())),
        other => Err(format!("syncs in intervals are `relaxed`, not {other}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_ticker_ticks_until_it_is_dropped_or_fails() {
        let ticks = Arc::new(AtomicU32::new(0));
        let counted = ticks.clone();
        let ticker = Ticker::start(Duration::from_millis(1), move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let ticker = ticker.unwrap();
        while ticks.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        ticker.check().unwrap();
        drop(ticker);
        assert_eq!(Arc::strong_count(&ticks), 1, "the thread is gone");

        let failing = Ticker::start(Duration::from_millis(1), || Err("no device".into())).unwrap();
        while failing.check().is_ok() {
            std::thread::yield_now();
        }
    }
}
