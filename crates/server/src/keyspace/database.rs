//! The maps of one database, and the list of its keys that have a deadline.

use tembo::{Map, MapOptions, Pool};

use super::batch::Batch;
use super::format::encode_expiry;
use super::placement::{Layout, counting_of};
use crate::fault::Answer;

/// The maps of one database.
pub(super) struct Database {
    pub(super) data: Map,
    pub(super) expires: Map,
    /// The length of `expires` as the batch sees it, once it has been read.
    pub(super) expires_len: Option<u64>,
}

impl Database {
    pub(super) fn open(pool: &Pool, layout: Layout, number: usize) -> Result<Self, tembo::Error> {
        let (data, expires) = layout.map_names(number);
        let data = match pool.find_map(&data)? {
            // Databases did not always count their keys.
            Some(data) => data,
            None => pool.open_map_with(&data, MapOptions::new().counting(counting_of(&data)))?,
        };
        Ok(Database { data, expires: pool.open_map(&expires)?, expires_len: None })
    }

    /// Lists the key at `place` under `deadline`.
    pub(super) fn list(
        &mut self,
        batch: &mut Batch<'_>,
        expiry: &mut Vec<u8>,
        deadline: u64,
        place: &[u8],
    ) -> Answer {
        encode_expiry(expiry, deadline, place);
        if !batch.put(&self.expires, expiry, &[])? {
            self.expires_len = self.expires_len.map(|len| len + 1);
        }
        Ok(())
    }

    /// Takes the key at `place` off the list of deadlines.
    pub(super) fn unlist(
        &mut self,
        batch: &mut Batch<'_>,
        expiry: &mut Vec<u8>,
        deadline: u64,
        place: &[u8],
    ) -> Answer {
        encode_expiry(expiry, deadline, place);
        if batch.remove(&self.expires, expiry)? {
            self.expires_len = self.expires_len.map(|len| len - 1);
        }
        Ok(())
    }

    pub(super) fn expires_len(&mut self, batch: &Batch<'_>) -> Answer<u64> {
        match self.expires_len {
            Some(len) => Ok(len),
            None => Ok(*self.expires_len.insert(batch.len(&self.expires)?)),
        }
    }
}
