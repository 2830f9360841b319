//! Values that many change at once: each transaction sees one state of them, and no change is lost.

use super::{NodePrivateFields, Root, RootPrivateFields, THREADS, at_once, open, open_with, pause, rounds};
use rand::Rng;
use tembo_heap::{Error, Obj, ReadTx, Ref, brand};

brand!(Bank);

const ACCOUNTS: usize = 12;
const SUM: u64 = 100 * ACCOUNTS as u64;

/// Half of the accounts are objects, half share lines of an array.
fn account<'t>(
    tx: &ReadTx<'t, Bank>,
    root: Obj<'t, Bank, Root>,
    i: usize,
) -> Result<Ref<'t, Bank, u64>, Error> {
    if i.is_multiple_of(2) {
        let nodes = tx.array(root.nodes())?.expect("made at first");
        Ok(tx.load(nodes.at(i / 2))?.expect("never unlinked").value())
    } else {
        Ok(tx.array(root.numbers())?.expect("made at first").at(i / 2))
    }
}

/// The sum of all accounts, with a pause between some.
fn sum<'t>(tx: &ReadTx<'t, Bank>, root: Obj<'t, Bank, Root>, chance: u64) -> Result<u64, Error> {
    let mut sum = 0;
    for i in 0..ACCOUNTS {
        sum += tx.get(account(tx, root, i)?)?;
        pause(chance >> i);
    }
    Ok(sum)
}

#[test]
fn transfers_keep_the_sum_in_every_transaction() {
    let open = open_with::<Bank>(ACCOUNTS / 2, ACCOUNTS / 2);
    let heap = &open.heap;
    heap.write(|tx, root| {
        for i in 0..ACCOUNTS {
            let account = account(tx, root, i)?;
            tx.set(account, 100)?;
        }
        Ok(())
    })
    .unwrap();
    let count = rounds(600);
    at_once(1, |_, rng| {
        for _ in 0..count {
            let (from, to) = (rng.random_range(0..ACCOUNTS), rng.random_range(0..ACCOUNTS));
            let (kind, amount, chance) =
                (rng.random_range(0..10), rng.random_range(0..60), rng.random::<u64>());
            match kind {
                0..2 => {
                    let sum = heap.read(|tx, root| {
                        let sum = sum(tx, root, chance)?;
                        assert_eq!(sum, SUM, "as a reader sees it");
                        Ok(sum)
                    });
                    assert_eq!(sum.unwrap(), SUM);
                }
                2 => {
                    let done = heap.write(|tx, root| {
                        assert_eq!(sum(tx, root, chance)?, SUM, "as a writer sees it");
                        *tx.get_mut(root.count())? += 1;
                        Ok(())
                    });
                    done.unwrap();
                }
                _ => {
                    let done = heap.write(|tx, root| {
                        let (from, to) = (account(tx, root, from)?, account(tx, root, to)?);
                        let least = amount.min(tx.get(from)?);
                        *tx.get_mut(from)? -= least;
                        pause(chance);
                        *tx.get_mut(to)? += least;
                        if kind == 3 { Err(tx.cancel()) } else { Ok(()) }
                    });
                    assert!(done.as_ref().err().is_none_or(Error::is_cancelled), "{done:?}");
                }
            }
        }
    });
    open.check();
}

/// Bytes of a word, each of which is one thread's: who writes one keeps what others have written to its
/// neighbours meanwhile, also without having read anything.
#[test]
fn bytes_of_a_word_are_written_by_different_threads() {
    brand!(Neighbours);
    let open = open::<Neighbours>();
    let heap = &open.heap;
    heap.write(|tx, root| {
        let bytes = tx.alloc_array(THREADS as usize, |_| 0)?;
        tx.link_array(root.bytes(), bytes)
    })
    .unwrap();
    let count = rounds(600);
    at_once(6, |thread, rng| {
        for round in 0..count {
            let (before, chance) = (round as u8, rng.random::<u64>());
            heap.write(|tx, root| {
                let mine = tx.array(root.bytes())?.unwrap().at(thread as usize);
                if chance.is_multiple_of(3) {
                    assert_eq!(tx.get(mine)?, before);
                }
                tx.set(mine, before.wrapping_add(7))?;
                pause(chance);
                tx.set(mine, before.wrapping_add(1))?;
                assert_eq!(tx.get(mine)?, before.wrapping_add(1));
                Ok(())
            })
            .unwrap();
            let seen = heap.read(|tx, root| tx.get(tx.array(root.bytes())?.unwrap().at(thread as usize)));
            assert_eq!(seen.unwrap(), before.wrapping_add(1), "nobody else writes it");
        }
    });
}
