//! What may become of a topology file between two people and their tools, drawn by chance from a seed.

use crate::random::Random;

/// Values that YAML readers disagree about, or that no key takes.
const NASTY_VALUES: [&str; 48] = [
    "0100",
    "0o10",
    "0x10",
    "1_0",
    "1e3",
    "1.0",
    "-1",
    "+1",
    "0",
    "4095",
    "70000",
    "18446744073709551616",
    "99999999999999999999999999999999",
    "-9223372036854775809",
    ".inf",
    "-.inf",
    ".nan",
    "no",
    "yes",
    "on",
    "off",
    "y",
    "True",
    "~",
    "null",
    "",
    "\"\"",
    "''",
    "\"\\0\"",
    "\"\\e[2J\"",
    "\u{feff}",
    "52:54:00:12:34:56",
    "41135085296",
    "1:30",
    "2001-01-01",
    "!!str 10",
    "!!binary AA==",
    "!vlan 10",
    "&a",
    "*nowhere",
    "*",
    "<<",
    "{ <<: { <<: 7 } }",
    "[[[[]]]]",
    "{ ? [a] : b }",
    "|",
    "100 Mbps",
    "ü\u{2028}\u{202e}ß",
];

/// Pieces that do not belong into YAML, or mean something there.
const NASTY_PIECES: [&str; 26] = [
    "\0",
    "\u{feff}",
    "\t",
    "\r",
    "\r\n",
    "\u{7f}",
    "\u{9b}",
    "\u{85}",
    "\u{2028}",
    "---\n",
    "...\n",
    "%YAML 1.1\n",
    "# ",
    "{",
    "}",
    "[",
    "]",
    ": ",
    ", ",
    "\"",
    "'",
    "&a ",
    "*a ",
    "<<: *a\n",
    "- ",
    "? ",
];

/// `text` after one to three accidents.
pub fn mutate(text: &str, random: &mut Random) -> String {
    let accidents = 1 + random.below(3);
    (0..accidents).fold(text.to_owned(), |text, _| accident(&text, random))
}

fn accident(text: &str, random: &mut Random) -> String {
    let lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    if lines.is_empty() {
        return (*random.pick(&NASTY_VALUES)).to_owned();
    }
    match random.below(14) {
        0 => lines_changed(lines, random, |lines, at, _| drop(lines.remove(at))),
        1 => lines_changed(lines, random, |lines, at, _| lines.insert(at, lines[at].clone())),
        2 => lines_changed(lines, random, |lines, at, random| {
            let other = random.below(lines.len());
            lines.swap(at, other);
        }),
        3 => lines_changed(lines, random, |lines, at, random| indent(lines, at, random)),
        4 => text.replace('\n', "\r\n"),
        5 => format!("\u{feff}{text}"),
        6 => piece_inserted(text, random),
        7 => token_changed(text, random, misspell),
        8 => token_changed(text, random, |token, random| format!("{token} {}", random.pick(&NASTY_VALUES))),
        9 | 10 => lines_changed(lines, random, |lines, at, random| value_replaced(lines, at, random)),
        11 => format!("{}{text}", alias_bomb(1 + random.below(12), 1 + random.below(12))),
        12 => {
            let depth = 1 + random.below(200);
            lines_changed(lines, random, |lines, at, _| {
                lines[at] = format!("x-deep: {}{}\n", "[".repeat(depth), "]".repeat(depth));
            })
        }
        _ => text.chars().take(random.below(text.chars().count())).collect(),
    }
}

/// `change` at a line drawn by chance.
fn lines_changed(
    mut lines: Vec<String>,
    random: &mut Random,
    change: impl FnOnce(&mut Vec<String>, usize, &mut Random),
) -> String {
    let at = random.below(lines.len());
    change(&mut lines, at, random);
    lines.concat()
}

fn indent(lines: &mut [String], at: usize, random: &mut Random) {
    let line = lines[at].trim_start_matches([' ', '\t']).to_owned();
    let by = *random.pick(&["", " ", "  ", "   ", "    ", "\t", " \t", "          "]);
    lines[at] = format!("{by}{line}");
}

/// What follows the first colon of a line, up to a comma, becomes something else.
fn value_replaced(lines: &mut [String], at: usize, random: &mut Random) {
    let colons: Vec<usize> = lines[at].match_indices(": ").map(|(colon, _)| colon).collect();
    if colons.is_empty() {
        return;
    }
    let start = *random.pick(&colons) + 2;
    let end = lines[at][start..].find([',', '}', '\n']).map_or(lines[at].len(), |end| start + end);
    let value = *random.pick(&NASTY_VALUES);
    lines[at].replace_range(start..end, value);
}

fn piece_inserted(text: &str, random: &mut Random) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let at = random.below(chars.len() + 1);
    chars.splice(at..at, random.pick(&NASTY_PIECES).chars());
    chars.into_iter().collect()
}

/// `change` for a word or number drawn by chance.
fn token_changed(text: &str, random: &mut Random, change: fn(&str, &mut Random) -> String) -> String {
    let mut start = random.below(text.len());
    let bytes = text.as_bytes();
    while start < bytes.len() && !bytes[start].is_ascii_alphanumeric() {
        start += 1;
    }
    let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let token = &text[start..start + length];
    format!("{}{}{}", &text[..start], change(token, random), &text[start + length..])
}

/// As fingers do: a letter less, twice, in the other case, or changed for its neighbour.
fn misspell(token: &str, random: &mut Random) -> String {
    let mut chars: Vec<char> = token.chars().collect();
    if chars.is_empty() {
        return String::new();
    }
    let at = random.below(chars.len());
    match random.below(4) {
        0 => drop(chars.remove(at)),
        1 => chars.insert(at, chars[at]),
        2 => chars[at] = if chars[at].is_lowercase() { chars[at].to_ascii_uppercase() } else { 'x' },
        _ => chars.swap(at, at.saturating_sub(1)),
    }
    chars.into_iter().collect()
}

/// Aliases of aliases: `width` to the power of `depth` values in a few lines ("billion laughs").
fn alias_bomb(width: usize, depth: usize) -> String {
    let level = |level: usize| {
        let inner = if level == 0 { "x".to_owned() } else { format!("*b{}", level - 1) };
        format!("x-b{level}: &b{level} [{}]\n", vec![inner; width].join(", "))
    };
    (0..depth).map(level).collect()
}
