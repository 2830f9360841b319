//! The record of replaced data that are kept: see [`super::retention`].

use tembo::Pool;

use super::database::Database;
use super::format::{COLLECTIONS, DATABASES, Malformed};

/// The key of the record.
pub(crate) const KEPT: &[u8] = b"k";

const STATE_BYTES: usize = 8 + 8 + 1 + 1;

/// A state that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptState {
    pub(crate) deadline_ms: u64,
    pub(crate) since_ms: u64,
    /// Whether it is the state of all databases; a database that it does not name was empty.
    pub(super) is_all: bool,
    /// Databases, and the numbers of the maps that they had.
    pub(super) places: Vec<(u8, u8)>,
}

/// The states that are kept, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptStates(pub(crate) Vec<KeptState>);

impl KeptStates {
    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self, Malformed> {
        let (mut states, mut seen) = (Vec::new(), 0u16);
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_first_chunk::<STATE_BYTES>().ok_or(Malformed)?;
            let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
            let (deadline_ms, since_ms, scope) = (number(0), number(8), head[16]);
            let (pairs, rest) = rest.split_at_checked(2 * usize::from(head[17])).ok_or(Malformed)?;
            let places: Vec<(u8, u8)> = pairs.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
            let mut databases = 0u16;
            for &(database, number) in &places {
                let is_known = usize::from(database.max(number)) < DATABASES;
                if !is_known || seen >> number & 1 == 1 || databases >> database & 1 == 1 {
                    return Err(Malformed);
                }
                (seen, databases) = (seen | 1 << number, databases | 1 << database);
            }
            if scope > 1 || places.is_empty() {
                return Err(Malformed);
            }
            states.push(KeptState { deadline_ms, since_ms, is_all: scope == 1, places });
            bytes = rest;
        }
        Ok(KeptStates(states))
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for state in &self.0 {
            out.extend_from_slice(&state.deadline_ms.to_le_bytes());
            out.extend_from_slice(&state.since_ms.to_le_bytes());
            out.extend_from_slice(&[u8::from(state.is_all), state.places.len() as u8]);
            state.places.iter().for_each(|(database, number)| out.extend_from_slice(&[*database, *number]));
        }
        out
    }

    /// The numbers of kept maps, as bits.
    pub(crate) fn bits(&self) -> u16 {
        self.0.iter().flat_map(|state| &state.places).fold(0, |bits, (_, number)| bits | 1 << number)
    }

    pub(super) fn has(&self, number: usize) -> bool {
        self.bits() >> number & 1 == 1
    }
}

/// The states that are kept, as the pool has them. A damaged record gives no states; the check names it.
pub(crate) fn stored_kept(pool: &Pool) -> Result<KeptStates, tembo::Error> {
    let Some(list) = pool.find_map(COLLECTIONS)? else { return Ok(KeptStates::default()) };
    let record = list.get(KEPT)?;
    Ok(record.and_then(|record| KeptStates::decode(&record).ok()).unwrap_or_default())
}

/// The states that a keyspace keeps, as its batch has them.
#[derive(Default)]
pub(crate) struct Keeping {
    pub(crate) states: KeptStates,
    /// The maps of kept numbers, which no database has.
    pub(super) maps: [Option<Box<Database>>; DATABASES],
    /// How long states are kept from now on; 0 for not at all.
    pub(crate) grace_ms: u64,
    /// A flush waits for maps that are to be created; without room for them it keeps nothing.
    pub(super) awaits_maps: bool,
    pub(super) lacks_room: bool,
    /// States that were given up before their time.
    pub(crate) given_up: u64,
    /// A mistake, for the crash simulator to find: data are kept one commit after they are replaced.
    #[cfg(test)]
    pub(crate) keeps_late: bool,
}

impl Keeping {
    /// The states that a pool keeps; their maps are to follow.
    pub(super) fn of(states: KeptStates) -> Self {
        Keeping { states, ..Keeping::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_back_and_damaged_ones_are_refused() {
        let state = |places: &[(u8, u8)]| KeptState {
            deadline_ms: 7,
            since_ms: 3,
            is_all: places.len() > 1,
            places: places.to_vec(),
        };
        let states = KeptStates(vec![state(&[(0, 3), (1, 15)]), state(&[(0, 4)])]);
        assert_eq!(KeptStates::decode(&states.encode()), Ok(states.clone()));
        assert_eq!(states.bits(), 1 << 3 | 1 << 15 | 1 << 4);
        for wrong in [
            vec![state(&[(0, 3)]), state(&[(1, 3)])],
            vec![state(&[(0, 3), (0, 4)])],
            vec![state(&[(0, 16)])],
            vec![state(&[(16, 0)])],
            vec![state(&[])],
        ] {
            assert_eq!(KeptStates::decode(&KeptStates(wrong.clone()).encode()), Err(Malformed), "{wrong:?}");
        }
        let bytes = states.encode();
        for cut in 1..bytes.len() {
            assert!(cut == STATE_BYTES + 4 || KeptStates::decode(&bytes[..cut]).is_err(), "{cut}");
        }
    }
}
