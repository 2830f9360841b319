//! The causes of an error.

use tembo::{IndexError, PoolError};

/// The error of the pool that caused an error of the store, if any.
pub(crate) fn pool_error(error: &tembo::Error) -> Option<&PoolError> {
    match error {
        tembo::Error::Pool(error) | tembo::Error::Index(IndexError::Pool(error)) => Some(error),
        tembo::Error::Heap(error) => error.pool_error(),
        _ => None,
    }
}

/// An error and what caused it, on one line, without saying anything twice.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Chain {
        text: &'static str,
        #[source]
        cause: Option<Box<Chain>>,
    }

    fn chain(texts: &[&'static str]) -> Option<Box<Chain>> {
        let (text, rest) = texts.split_first()?;
        Some(Box::new(Chain { text, cause: chain(rest) }))
    }

    #[test]
    fn causes_are_said_once() {
        let error = chain(&["opening a.pool: no such file", "no such file", "os error 2"]).unwrap();
        assert_eq!(with_causes(&*error), "opening a.pool: no such file: os error 2");
    }
}
