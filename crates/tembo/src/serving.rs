//! Serving the stores of a pool to other processes.

use crate::{Error, Pool, Result};
use std::path::Path;
use tembo_store::Store;
use tembo_store::remote::{Host, ServeOptions, Serving, serve};

/// The stores of a pool.
struct Stores(Pool);

/// The error as a client gets it.
fn of_store(error: Error) -> tembo_store::Error {
    match error {
        Error::Store(e) => e,
        Error::Pool(e) => e.into(),
        other => tembo_store::Error::Remote { message: other.to_string(), is_full: false },
    }
}

impl Host for Stores {
    fn find(&self, name: &str) -> tembo_store::Result<Option<Store>> {
        self.0.find_store(name).map_err(of_store)
    }

    fn names(&self) -> tembo_store::Result<Vec<String>> {
        self.0.store_names().map_err(of_store)
    }
}

impl Pool {
    /// Serves all [stores](crate::store) of the pool to other processes of the same user, and of root, until
    /// the guard is dropped. It keeps the pool open.
    /// [`socket_of(path)`](tembo_store::remote::socket_of) is the usual place. Maps are not served.
    ///
    /// # Errors
    ///
    /// As for [`Store::serve`].
    pub fn serve_stores(&self, socket: impl AsRef<Path>, options: ServeOptions) -> Result<Serving> {
        self.shared.pool.check_process()?;
        Ok(serve(socket, Stores(self.clone()), options)?)
    }
}
