//! Transactions on persistent objects, as programs use them.

use tembo_heap::{Error, ErrorKind, Heap, Options, PArr, PRc, PWeak, Persist, brand};

#[derive(Persist)]
#[repr(C)]
struct Node {
    value: u64,
    next: PRc<Node>,
    back: PWeak<Node>,
}

#[derive(Persist, Default)]
#[repr(C)]
struct Root {
    first: PRc<Node>,
    count: u64,
    numbers: PArr<u64>,
}

fn create() -> Options {
    Options::new().create(true)
}

#[test]
fn a_list_is_there_again_after_the_heap_was_closed() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("list.heap");
    Heap::<_, Root>::with(&path, create(), |heap| {
        for value in 0..10 {
            heap.write(|tx, root| {
                let node = tx.alloc(Node { value, next: PRc::null(), back: PWeak::null() })?;
                let first = tx.load(root.first())?;
                tx.link(node.next(), first)?;
                if let Some(first) = first {
                    tx.link_weak(first.back(), node)?;
                }
                tx.link(root.first(), node)?;
                *tx.get_mut(root.count())? += 1;
                Ok(())
            })?;
        }
        Ok(())
    })?;
    brand!(List);
    let heap = Heap::<List, Root>::open(&path, create())?;
    let values = heap.read(|tx, root| {
        let mut values = Vec::new();
        let mut next = tx.load(root.first())?;
        while let Some(node) = next {
            values.push(tx.get(node.value())?);
            next = tx.load(node.next())?;
            if let Some(next) = next {
                assert_eq!(tx.upgrade(next.back())?, Some(node));
            }
        }
        assert_eq!(tx.get(root.count())?, 10);
        Ok(values)
    })?;
    assert_eq!(values, (0..10).rev().collect::<Vec<u64>>());
    Ok(())
}

/// Two heaps on one pool would each know nothing of what the other's transactions own.
#[test]
fn the_heap_of_a_pool_is_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let pool = tembo_pool::Pool::open(dir.path().join("once.heap"), &create()).unwrap();
    brand!(First);
    brand!(Second);
    let first = Heap::<First, Root>::open_pool(pool.clone()).unwrap();
    let refused = Heap::<Second, Root>::open_pool(pool.clone()).err();
    assert!(matches!(refused.as_ref().map(Error::kind), Some(ErrorKind::InUse)), "{refused:?}");
    let refused = Heap::<First, Root>::open_pool(pool.clone()).err();
    assert!(matches!(refused.as_ref().map(Error::kind), Some(ErrorKind::BrandInUse { .. })), "{refused:?}");
    drop(first);
    Heap::<Second, Root>::open_pool(pool).unwrap();
}

/// A closure's error type had to be said in each call of `write`, or the most natural line did not compile.
#[test]
fn a_transaction_needs_no_type_for_its_errors() -> Result<(), Box<dyn std::error::Error>> {
    #[derive(Debug, thiserror::Error)]
    #[error("there are {0} already")]
    struct Full(u64);
    impl From<Full> for Error {
        fn from(full: Full) -> Error {
            Error::user(full)
        }
    }
    let dir = tempfile::tempdir().unwrap();
    Heap::<_, Root>::with(dir.path().join("plain.heap"), create(), |heap| {
        heap.write(|tx, root| {
            *tx.get_mut(root.count())? += 1;
            Ok(())
        })?;
        let more = |most: u64| {
            heap.write(|tx, root| {
                let count = tx.get(root.count())?;
                tx.set(root.count(), count + 1)?;
                if count >= most {
                    Err(Full(count))?
                }
                Ok(())
            })
        };
        more(5)?;
        let refused = more(2).unwrap_err();
        assert_eq!(refused.to_string(), "there are 2 already");
        assert_eq!(refused.downcast_ref::<Full>().map(|full| full.0), Some(2));
        assert!(refused.downcast::<std::io::Error>().is_err_and(|same| same.downcast::<Full>().is_ok()));
        assert_eq!(heap.read(|tx, root| tx.get(root.count()))?, 2, "what failed changed nothing");
        assert_eq!(heap.write(|_, _| Err::<(), _>(Error::user("no"))).unwrap_err().to_string(), "no");
        let typed: Result<(), Full> =
            heap.try_write(|_, _| Err(Refusal::Mine(Full(9)))).map_err(|refusal| match refusal {
                Refusal::Mine(full) => full,
                Refusal::Heap(e) => panic!("{e}"),
            });
        assert!(matches!(typed, Err(Full(9))));
        let count = heap.try_read::<_, Refusal>(|tx, root| Ok(tx.get(root.count())?));
        assert!(matches!(count, Ok(2)));
        Ok(())
    })?;
    enum Refusal {
        Mine(Full),
        Heap(Error),
    }
    impl From<Error> for Refusal {
        fn from(e: Error) -> Refusal {
            Refusal::Heap(e)
        }
    }
    Ok(())
}

#[test]
fn a_pointer_that_is_never_null_is_followed_without_asking() -> Result<(), Error> {
    let dir = tempfile::tempdir().unwrap();
    Heap::<_, Root>::with(dir.path().join("follow.heap"), create(), |heap| {
        heap.write(|tx, root| {
            let node = tx.alloc(Node { value: 4, next: PRc::null(), back: PWeak::null() })?;
            tx.link(root.first(), node)?;
            assert_eq!(tx.get(tx.follow(root.first())?.value())?, 4);
            let numbers = tx.alloc_array(3, |i| i as u64)?;
            tx.link_array(root.numbers(), numbers)
        })?;
        let (value, number) = heap.read(|tx, root| {
            Ok((tx.get(tx.follow(root.first())?.value())?, tx.get(tx.follow_array(root.numbers())?.at(2))?))
        })?;
        assert_eq!((value, number), (4, 2));
        let null = heap.write(|tx, root| {
            tx.set(root.count(), 9)?;
            let second = tx.follow(tx.follow(root.first())?.next())?;
            tx.link(root.first(), second)
        });
        let text = null.unwrap_err().to_string();
        assert!(text.starts_with("the PRc<Node> at 0x") && text.contains("is null"), "{text}");
        assert_eq!(heap.read(|tx, root| tx.get(root.count()))?, 0, "it ended the transaction");
        heap.write(|tx, root| tx.link_array(root.numbers(), None))?;
        let null = heap.read(|tx, root| Ok(tx.follow_array(root.numbers())?.len()));
        assert!(matches!(&null, Err(e) if matches!(e.kind(), ErrorKind::NullPointer { .. })), "{null:?}");
        Ok(())
    })
}

/// Bytes of media that are no value of a type end the transaction with what was found, and make no value.
#[test]
fn a_value_that_is_none_is_damage() -> Result<(), Error> {
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Values {
        maybe: Option<u32>,
        wait: std::time::Duration,
        pair: (u8, Option<bool>),
    }
    let dir = tempfile::tempdir().unwrap();
    let pool = tembo_pool::Pool::open(dir.path().join("values.heap"), &create())?;
    Heap::<_, Values>::with_pool(pool.clone(), |heap| {
        let at = heap.read(|_, root| Ok(format!("{:?}", *root)))?;
        let at = u64::from_str_radix(at.rsplit_once("0x").unwrap().1, 16).unwrap();
        let region = pool.region();
        for off in (0..size_of::<Values>() as u64).step_by(8) {
            region.store_u64(at + off, u64::MAX)?;
        }
        let maybe = heap.read(|tx, root| tx.get(root.maybe())).unwrap_err().to_string();
        let wait = heap.read(|tx, root| tx.get(root.wait())).unwrap_err().to_string();
        let pair = heap.read(|tx, root| tx.get(root.pair())).unwrap_err().to_string();
        for (text, what) in [(maybe, "Option<u32>"), (wait, "Duration"), (pair, "(u8, Option<bool>)")] {
            assert!(text.contains(&format!("a {what}")), "{text}");
        }
        Ok(())
    })
}
