//! Every structure that the pool keeps on media, and where it lies.

use crate::{Error, Result};
use tembo_pmem::{LINE_BYTES, media_struct, offset_of};
use xxhash_rust::xxh3::xxh3_64;

/// The first eight bytes of every pool.
pub(crate) const MAGIC: [u8; 8] = *b"TEMBOPM\n";
/// The newest format version known, and the one written.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Reads as another value on a machine of the other byte order.
pub(crate) const BYTE_ORDER: u32 = 0x0102_0304;
/// Bytes of the header page.
pub(crate) const HEADER_BYTES: u64 = 4096;
/// The granularity of file lengths.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// Bytes that the header's checksum covers; this much is laid out alike in every format version.
pub(crate) const HEADER_SUMMED_BYTES: usize = 120;

media_struct! {
    /// The header page, at offset 0. Written once, except for the words from `committed` on, and for
    /// `incompatible` and `checksum` where a feature is added (`features.rs`).
    pub(crate) struct PmHeader: 4096 {
        /// The bytes `TEMBOPM\n`.
        0 => magic: [u8; 8],
        /// Format version, 1.
        8 => version: u32,
        /// 0x01020304 in the byte order of the writing machine.
        12 => byte_order: u32,
        /// Features that a program must know (bits 0 to 15 of the pool itself, 16 to 23 kinds of roots, 24 to
        /// 31 size classes).
        16 => incompatible: u64,
        /// Features that may be ignored.
        24 => compatible: u64,
        /// The pool's identity, kept by copies.
        32 => uuid: [u8; 16],
        /// Bytes of a chunk, the unit of space; a power of two.
        48 => chunk_bytes: u32,
        /// Bytes of a lane.
        52 => lane_bytes: u32,
        /// Chunks of a zone, its own header included.
        56 => zone_chunks: u32,
        /// Number of lanes.
        60 => lane_count: u32,
        /// Number of entries of the root directory.
        64 => root_count: u32,
        /// Zero.
        68 => reserved_a: u32,
        /// Seconds since 1970 when the pool was created.
        72 => created_unix_s: u64,
        /// Zero.
        80 => reserved_b: [u8; 40],
        /// XXH3-64 of bytes 0 to 119.
        120 => checksum: u64,
        /// Length in use: 4 KiB pages in the low 40 bits, a check in the high 24. Changes when the pool
        /// grows or is cut.
        128 => committed: u64,
        /// Zero.
        136 => reserved_c: [u8; 56],
        /// Records with a sequence number up to this (low 48 bits; a check above) are dead.
        192 => watermark: u64,
        /// Zero.
        200 => reserved_d: [u8; 56],
        /// How the pool was last used for writing (low 48 bits; a check above): in bits 0 to 2 the domain (1
        /// DAX, 2 synced, 3 page cache, 4 emulated, 5 a file system in memory, 6 a journal), bit 3 whether it
        /// is open; if so, in bits 4 to 23 a hash of the file's inode and device, in bits 24 to 47 one of the
        /// boot's id. 0 says nothing.
        256 => opening: u64,
        /// Zero.
        264 => reserved_e: [u8; 56],
        /// As `incompatible` is, or is about to be (low 32 bits; a check above); 0 if it never changed.
        320 => features: u64,
        /// The first of the objects that have no name any more and are freed step by step (low 48 bits; a
        /// check above), or 0. Changed by records only.
        328 => dropped: u64,
        /// Where the journal of a pool on a disk lies (low 48 bits; a check above), or 0. Changed by records
        /// only.
        336 => journal: u64,
        /// Zero.
        344 => reserved_f: [u8; 3752],
    }
}

media_struct! {
    /// An entry of the root directory, after the header. Changed by records only.
    pub(crate) struct PmRoot: 64 {
        /// The name, padded with zeros.
        0 => name: [u8; 40],
        /// Length of the name in bytes; 0 for an unused entry.
        40 => name_bytes: u64,
        /// What kind of object the root is, chosen by its owner.
        48 => kind: u64,
        /// The object's offset.
        56 => off: u64,
    }
}

media_struct! {
    /// The first line of a lane. Its two halves follow, in which records lie one after another.
    pub(crate) struct PmLane: 64 {
        /// This lane's records with a sequence number up to this are dead.
        0 => retired: u64,
        /// Zero.
        8 => reserved: [u8; 56],
    }
}

media_struct! {
    /// The head of a record, at the start of a line. The payload follows it, or lies at `chain`: entries,
    /// then covers (offset << 16 | bytes, both multiples of 8), then, if there are covers, the XXH3-64 of the
    /// bytes that they name, its low 3 bits cleared.
    pub(crate) struct PmRecord: 32 {
        /// The mark of a head, 7 (low 3 bits), and the sequence number; higher than the one before in its
        /// half, or else this is no record.
        0 => seq: u64,
        /// XXH3-64 over `seq`, `counts`, `chain` and the payload.
        8 => checksum: u64,
        /// Number of entries (low 32 bits) and of covers (high 32 bits).
        16 => counts: u64,
        /// Where the payload lies if it does not fit into the half, else 0. Only the first two of a half have
        /// one.
        24 => chain: u64,
    }
}

media_struct! {
    /// A payload entry: one change of one word, or, as the last entries, stores of words of a line.
    pub(crate) struct PmEntry: 16 {
        /// The word's offset; its low 3 bits say what to do: 0 store, 1 set bits, 2 clear bits, 3 maximum; 4
        /// store words of the line at this offset: those of the mask in the high 8 bits.
        0 => target: u64,
        /// The value or the bits. With 4, the first of the values, all of which follow the target; the next
        /// target follows these. No value begins a line of the record. A target 4 without words fills up the
        /// last entry.
        8 => operand: u64,
    }
}

media_struct! {
    /// The first line of a zone. The chunk table, a word per chunk, follows it.
    pub(crate) struct PmZone: 64 {
        /// Chunks from this one on have never been used; 0 means that only the zone's header is.
        0 => frontier: u64,
        /// Chunks from this one on read as zero. Changed directly, before a chunk is handed out.
        8 => zero_from: u64,
        /// In zone 0: the zone that new chunks were last taken from. Where to look first, and not relied on.
        16 => newest: u64,
        /// Zero. In zone 0, records that are to change nothing store that again.
        24 => reserved: [u8; 40],
    }
}

media_struct! {
    /// The head of a slab. Its allocation bitmap follows: a bit per block, 1 = allocated.
    pub(crate) struct PmSlab: 8 {
        /// The slab's tag (high 32 bits) and size class (low 32 bits).
        0 => tag: u64,
    }
}

/// Lines of a group. A group begins with one line that holds the tags of the others, at a multiple of the
/// group's length.
pub(crate) const TAGGED_GROUP: u64 = 4;
/// Bytes of such a group.
pub(crate) const TAGGED_GROUP_BYTES: u64 = (1 + TAGGED_GROUP) * LINE_BYTES;
/// Bytes of a tag.
pub const TAG_BYTES: u64 = LINE_BYTES / TAGGED_GROUP;

/// The offset of the tag of a line that [`Tx::alloc_tagged`](crate::Tx::alloc_tagged) allocated. For any
/// other offset the result is meaningless.
#[inline(always)]
pub const fn tag_off(line_off: u64) -> u64 {
    let within = line_off % TAGGED_GROUP_BYTES;
    let line = (within / LINE_BYTES).wrapping_sub(1);
    (line_off - within).wrapping_add(TAG_BYTES.wrapping_mul(line))
}

/// The high half of [`PmSlab::tag`].
pub(crate) const SLAB_TAG: u64 = 0x51AB_0001 << 32;

/// Longest name of a root, in bytes.
pub(crate) const ROOT_NAME_BYTES: usize = 40;
/// Sequence numbers stay below this.
pub(crate) const MAX_SEQ: u64 = 1 << 48;

/// A chunk's word in the chunk table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkWord {
    /// Free, or inside an extent.
    Zero,
    /// The first chunk of a slab of this size class.
    Slab { class: usize },
    /// A later chunk of a slab, this many chunks after its first.
    SlabRest { back: u64 },
    /// The first of `chunks` chunks that are one block.
    Extent { chunks: u64 },
}

impl ChunkWord {
    pub(crate) fn encode(self) -> u64 {
        match self {
            ChunkWord::Zero => 0,
            ChunkWord::Slab { class } => 1 | (class as u64) << 8,
            ChunkWord::SlabRest { back } => 2 | back << 8,
            ChunkWord::Extent { chunks } => 3 | chunks << 8,
        }
    }

    pub(crate) fn decode(word: u64, off: u64) -> Result<ChunkWord> {
        let rest = word >> 8;
        match word & 0xFF {
            0 if rest == 0 => Ok(ChunkWord::Zero),
            1 => Ok(ChunkWord::Slab { class: rest as usize }),
            2 if rest > 0 => Ok(ChunkWord::SlabRest { back: rest }),
            3 if rest > 0 => Ok(ChunkWord::Extent { chunks: rest }),
            _ => Err(Error::corrupt("the chunk table", off, "a chunk word", format!("{word:#x}"))),
        }
    }
}

/// The sizes that are chosen when a pool is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a chunk, the unit in which space is handed to slabs and large blocks; a power of two
    /// from 4 KiB to 1 MiB.
    pub chunk_bytes: u32,
    /// Chunks of a zone, 16 to 2^20. A block cannot be larger than a zone.
    pub zone_chunks: u32,
    /// Number of lanes, 1 to 4096: how many writers there can be at once.
    pub lane_count: u32,
    /// Bytes of a lane, 512 B to 1 MiB. A record of more than almost half of it is chained.
    pub lane_bytes: u32,
    /// Number of named roots, 1 to 4096.
    pub root_count: u32,
}

impl Default for Geometry {
    /// For pools of any size: 16 KiB chunks, zones of 1 GiB, 64 lanes of 16 KiB, 128 roots.
    fn default() -> Self {
        Geometry {
            chunk_bytes: 16 << 10,
            zone_chunks: 1 << 16,
            lane_count: 64,
            lane_bytes: 16 << 10,
            root_count: 128,
        }
    }
}

/// The least chunk size with fine size classes: small pools would waste more by slabs that are not full.
pub(crate) const FINE_CHUNK_BYTES_MIN: u64 = 16 << 10;

impl Geometry {
    /// For pools that stay below 64 MiB: 4 KiB chunks, zones of 64 MiB, 16 lanes of 4 KiB, 64 roots. No block
    /// can be larger than a zone, even if the pool later grows beyond one.
    pub fn small() -> Geometry {
        Geometry { chunk_bytes: 4096, zone_chunks: 1 << 14, lane_count: 16, lane_bytes: 4096, root_count: 64 }
    }

    /// For pools of a few hundred KiB, as tests and the crash simulator use them.
    pub fn tiny() -> Geometry {
        Geometry { chunk_bytes: 4096, zone_chunks: 1 << 9, lane_count: 4, lane_bytes: 1024, root_count: 8 }
    }

    pub(crate) fn validate(&self) -> Result<(), String> {
        let in_range = |name: &str, value: u32, least: u32, most: u32| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("{name} is {value}, not {least} to {most}"))
            }
        };
        in_range("chunk_bytes", self.chunk_bytes, 4096, 1 << 20)?;
        in_range("zone_chunks", self.zone_chunks, 16, 1 << 20)?;
        in_range("lane_count", self.lane_count, 1, 4096)?;
        in_range("lane_bytes", self.lane_bytes, 512, 1 << 20)?;
        in_range("root_count", self.root_count, 1, 4096)?;
        if !self.chunk_bytes.is_power_of_two() || !self.lane_bytes.is_multiple_of(LINE_BYTES as u32) {
            return Err("chunk_bytes is not a power of two, or lane_bytes not a multiple of 64".to_owned());
        }
        if self.zone_header_chunks() * 2 > u64::from(self.zone_chunks) {
            return Err("a zone would be mostly its own header".to_owned());
        }
        Ok(())
    }

    pub(crate) fn chunk(&self) -> u64 {
        u64::from(self.chunk_bytes)
    }

    /// Whether there are fine size classes.
    pub(crate) fn has_fine_classes(&self) -> bool {
        self.chunk() >= FINE_CHUNK_BYTES_MIN
    }

    pub(crate) fn roots_off(&self) -> u64 {
        HEADER_BYTES
    }

    pub(crate) fn lanes_off(&self) -> u64 {
        self.roots_off() + u64::from(self.root_count) * 64
    }

    pub(crate) fn lane_off(&self, lane: u32) -> u64 {
        self.lanes_off() + u64::from(lane) * u64::from(self.lane_bytes)
    }

    /// Bytes of half a lane.
    pub(crate) fn half_bytes(&self) -> u64 {
        ((u64::from(self.lane_bytes) - LINE_BYTES) / 2) & !(LINE_BYTES - 1)
    }

    pub(crate) fn half_off(&self, lane: u32, half: usize) -> u64 {
        self.lane_off(lane) + LINE_BYTES + half as u64 * self.half_bytes()
    }

    pub(crate) fn zones_off(&self) -> u64 {
        let end = self.lane_off(self.lane_count);
        end.div_ceil(self.chunk()) * self.chunk()
    }

    pub(crate) fn zone_bytes(&self) -> u64 {
        u64::from(self.zone_chunks) * self.chunk()
    }

    pub(crate) fn zone_off(&self, zone: u64) -> u64 {
        self.zones_off() + zone * self.zone_bytes()
    }

    /// Chunks at the start of a zone that its header and chunk table take.
    pub(crate) fn zone_header_chunks(&self) -> u64 {
        (LINE_BYTES + 8 * u64::from(self.zone_chunks)).div_ceil(self.chunk())
    }

    /// The offset of a chunk's word.
    pub(crate) fn chunk_word_off(&self, zone: u64, chunk: u64) -> u64 {
        self.zone_off(zone) + LINE_BYTES + 8 * chunk
    }

    /// The offset of a chunk.
    pub(crate) fn chunk_off(&self, zone: u64, chunk: u64) -> u64 {
        self.zone_off(zone) + chunk * self.chunk()
    }

    /// A number that is the same for all offsets in one chunk.
    #[inline]
    pub(crate) fn chunk_key(&self, off: u64) -> u64 {
        off >> self.chunk_bytes.trailing_zeros()
    }

    /// The zone and chunk that an offset lies in.
    pub(crate) fn locate(&self, off: u64) -> Option<(u64, u64)> {
        let past = off.checked_sub(self.zones_off())?;
        Some((past / self.zone_bytes(), past % self.zone_bytes() / self.chunk()))
    }

    /// How many chunks of a zone exist in a pool of `committed` bytes.
    pub(crate) fn zone_limit(&self, zone: u64, committed: u64) -> u64 {
        let have = committed.saturating_sub(self.zone_off(zone)) / self.chunk();
        have.min(u64::from(self.zone_chunks))
    }

    /// How many zones have room for at least one chunk beyond their header.
    pub(crate) fn zone_count(&self, committed: u64) -> u64 {
        let whole = committed.saturating_sub(self.zones_off()) / self.zone_bytes();
        let rest = self.zone_limit(whole, committed);
        whole + u64::from(rest > self.zone_header_chunks())
    }

    /// The least length of a pool: the fixed parts, one zone header and four chunks.
    pub(crate) fn min_bytes(&self) -> u64 {
        self.zones_off() + (self.zone_header_chunks() + 4) * self.chunk()
    }
}

/// Packs a value of `bits` bits and a check of it into one word: it changes atomically, and damage is
/// detected.
pub(crate) fn seal(value: u64, bits: u32) -> u64 {
    let low = value & ((1 << bits) - 1);
    low | (xxh3_64(&low.to_le_bytes()) << bits)
}

/// Unpacks what [`seal`] packed; `None` if the check does not match.
pub(crate) fn unseal(word: u64, bits: u32) -> Option<u64> {
    let low = word & ((1 << bits) - 1);
    (seal(low, bits) == word).then_some(low)
}

/// Bits of the page count in `committed`.
pub(crate) const COMMITTED_BITS: u32 = 40;
/// Bits of `PmHeader::features`.
pub(crate) const FEATURE_BITS: u32 = 32;
/// Bits of the offset in `PmHeader::dropped`.
pub(crate) const DROPPED_BITS: u32 = 48;
/// The offset of that word. It and `journal` are the only ones of the header that records change.
pub(crate) const DROPPED_OFF: u64 = offset_of!(PmHeader, dropped) as u64;
/// Bits of the offset in `PmHeader::journal`.
pub(crate) const JOURNAL_BITS: u32 = 48;
/// The offset of that word.
pub(crate) const JOURNAL_OFF: u64 = offset_of!(PmHeader, journal) as u64;
/// Bits of the sequence number in `watermark`.
pub(crate) const WATERMARK_BITS: u32 = 48;
