//! Averages.

/// The middle value, or the mean of the two middle ones; 0 of nothing.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count.is_multiple_of(2) => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(
            [0.0, 3.0, 1.0, 2.0, 9.0].map(|v| median([v, 2.0, 1.0].into_iter())),
            [1.0, 2.0, 1.0, 2.0, 2.0]
        );
        assert_eq!(median([4.0, 1.0].into_iter()), 2.5);
        assert_eq!(median([].into_iter()), 0.0);
    }
}
