//! The checksum at the end of files and payloads: the CRC of 64 bits that Redis calls Jones.

use crc::{CRC_64_REDIS, Crc, Digest, Table};

static JONES: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// A checksum under way.
pub(crate) type Checksum = Digest<'static, u64, Table<16>>;

pub(crate) fn begin() -> Checksum {
    JONES.digest()
}

/// The checksum of all of `bytes`.
pub(crate) fn of(bytes: &[u8]) -> u64 {
    JONES.checksum(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_redis_s_checksum() {
        // The value of redis-server's own self-test.
        assert_eq!(super::of(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(super::of(b""), 0);
    }
}
