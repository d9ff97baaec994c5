//! "Did you mean …?"

/// The candidate that a typing mistake most likely turned into `word`, if any is close enough.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = word.chars().count();
    let tolerance = (letters / 3).max(1);
    candidates
        .into_iter()
        // Quick to see, and there may be thousands of names.
        .filter(|candidate| candidate.chars().count().abs_diff(letters) <= tolerance)
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= tolerance)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Restricted Damerau-Levenshtein distance: insertions, deletions, replacements and swaps of neighbours, case apart.
fn distance(a: &str, b: &str) -> usize {
    let letters = |word: &str| word.chars().flat_map(char::to_lowercase).collect::<Vec<_>>();
    let (a, b) = (letters(a), letters(b));
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_key_behind_a_typing_mistake() {
        let keys = ["vlan", "trunk", "native", "isolated", "shaping"];
        for (typed, meant) in
            [("vlna", "vlan"), ("isolatd", "isolated"), ("Shapping", "shaping"), ("trnuk", "trunk")]
        {
            assert_eq!(nearest(typed, keys), Some(meant));
        }
        assert_eq!(nearest("burst", keys), None);
    }
}
