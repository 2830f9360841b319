//! The bytes that begin a value or an instruction.

pub(crate) const STRING: u8 = 0;
pub(crate) const LIST: u8 = 1;
pub(crate) const SET: u8 = 2;
pub(crate) const ZSET: u8 = 3;
pub(crate) const HASH: u8 = 4;
pub(crate) const ZSET_2: u8 = 5;
pub(crate) const MODULE_PRE_GA: u8 = 6;
pub(crate) const MODULE_2: u8 = 7;
pub(crate) const HASH_ZIPMAP: u8 = 9;
pub(crate) const LIST_ZIPLIST: u8 = 10;
pub(crate) const SET_INTSET: u8 = 11;
pub(crate) const ZSET_ZIPLIST: u8 = 12;
pub(crate) const HASH_ZIPLIST: u8 = 13;
pub(crate) const LIST_QUICKLIST: u8 = 14;
pub(crate) const STREAM: u8 = 15;
pub(crate) const HASH_LISTPACK: u8 = 16;
pub(crate) const ZSET_LISTPACK: u8 = 17;
pub(crate) const LIST_QUICKLIST_2: u8 = 18;
pub(crate) const STREAM_2: u8 = 19;
pub(crate) const SET_LISTPACK: u8 = 20;
pub(crate) const STREAM_3: u8 = 21;
/// A hash of Valkey 9 with deadlines of fields. Release candidates of Redis 7.4 used the number otherwise.
pub(crate) const VALKEY_HASH_2: u8 = 22;
/// Hashes of Redis 7.4 with deadlines of fields.
pub(crate) const HASH_METADATA: u8 = 24;
pub(crate) const HASH_LISTPACK_EX: u8 = 25;

pub(crate) const SLOT_IMPORT: u8 = 243;
pub(crate) const SLOT_INFO: u8 = 244;
pub(crate) const FUNCTION: u8 = 245;
pub(crate) const FUNCTION_PRE_GA: u8 = 246;
pub(crate) const MODULE_AUX: u8 = 247;
pub(crate) const IDLE: u8 = 248;
pub(crate) const FREQUENCY: u8 = 249;
pub(crate) const AUX: u8 = 250;
pub(crate) const SIZES: u8 = 251;
pub(crate) const DEADLINE_MS: u8 = 252;
pub(crate) const DEADLINE_S: u8 = 253;
pub(crate) const DATABASE: u8 = 254;
pub(crate) const END: u8 = 255;
