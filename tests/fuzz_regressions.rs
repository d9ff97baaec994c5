//! What the fuzz targets found, replayed. Each file under `fuzz/regressions/TARGET/` is an input that once broke a promise
//! and is named for it; `fuzz/regressions/README.md` says in a sentence what it was. The seeds run too, so that no target
//! can pass by doing nothing.

use std::fs;
use std::path::Path;

use lockgate_tests::fuzz;
use lockgate_tests::random::Random;

/// Every input under `fuzz/regressions/<target>`, with its file's name.
fn regressions(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/regressions").join(target);
    let Ok(entries) = fs::read_dir(&directory) else { return Vec::new() };
    let read =
        |path: &Path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap());
    let mut inputs: Vec<_> = entries.map(|entry| read(&entry.unwrap().path())).collect();
    inputs.sort();
    inputs
}

/// Replays what was found, then the seeds and a few damaged copies of each.
fn replay(target: &str, check: fn(&[u8])) {
    for (name, input) in regressions(target) {
        eprintln!("{target}: {name}");
        check(&input);
    }
    let mut random = Random::new(7);
    for (name, seed) in fuzz::seeds::of(target) {
        eprintln!("{target}: seed {name}");
        check(&seed);
        for _ in 0..20 {
            let mut damaged = seed.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(damaged.len());
                damaged[at] = random.any().to_le_bytes()[0];
            }
            damaged.truncate(1 + random.below(2 * damaged.len()));
            check(&damaged);
        }
    }
}

#[test]
fn frame_parser() {
    replay("frame_parser", fuzz::frame_parser::check);
}

#[test]
fn pipeline() {
    replay("pipeline", fuzz::pipeline::check);
}

#[test]
fn config() {
    replay("config", |input| {
        if let Ok(text) = str::from_utf8(input) {
            fuzz::config::check(text);
        }
    });
}

#[test]
fn vnet_header() {
    replay("vnet_header", fuzz::vnet_header::check);
}

#[test]
fn every_regression_has_a_sentence() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/regressions/README.md");
    let sentences = fs::read_to_string(readme).unwrap();
    for target in ["frame_parser", "pipeline", "config", "vnet_header"] {
        assert!(!fuzz::seeds::of(target).is_empty(), "{target} has no seeds");
        for (name, _) in regressions(target) {
            assert!(sentences.contains(&format!("`{target}/{name}`")), "no sentence about {target}/{name}");
        }
    }
}

/// For `scripts/fuzz`: the fuzzer starts from these.
#[test]
#[ignore = "writes fuzz/corpus/"]
fn write_seeds() {
    for target in ["frame_parser", "pipeline", "config", "vnet_header"] {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
        fs::create_dir_all(&directory).unwrap();
        for (name, seed) in fuzz::seeds::of(target) {
            fs::write(directory.join(format!("seed-{name}")), seed).unwrap();
        }
    }
}
