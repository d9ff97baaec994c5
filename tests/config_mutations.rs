//! Five hundred damaged copies of the good topologies, the same on every run: each is taken or refused with a place for
//! every mistake, none panics, and none takes for ever. What is not even text is refused as well.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lockgate_control::config;
use lockgate_tests::process::temporary_path;
use lockgate_tests::random::Random;
use lockgate_tests::{fuzz, mutation};

const MUTATIONS: u64 = 500;
/// Far more than any of them needs: a thousand times what one takes. It makes a message of what would be a hang.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn five_hundred_mutations_are_taken_or_refused_with_places() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let texts: Vec<String> = files.iter().map(|path| fs::read_to_string(path).unwrap()).collect();

    let (begun, progress) = mpsc::channel();
    let worker = thread::spawn(move || {
        let mut refused = 0;
        for seed in 0..MUTATIONS {
            let mut random = Random::new(seed);
            let text = mutation::mutate(random.pick::<String>(&texts), &mut random);
            begun.send((seed, text.clone())).expect("the test listens until the end");
            refused += u64::from(!fuzz::config::check(&text));
        }
        refused
    });
    let mut last = (0, String::new());
    loop {
        match progress.recv_timeout(PATIENCE) {
            Ok(next) => last = next,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("mutation {} hangs:\n{}", last.0, last.1),
        }
    }
    let refused = worker.join().unwrap_or_else(|_| panic!("mutation {} panics:\n{}", last.0, last.1));
    assert!((MUTATIONS / 2..MUTATIONS).contains(&refused), "{refused} of {MUTATIONS} are refused");
}

#[test]
fn a_file_that_is_not_text_is_refused_at_its_first_bad_byte() {
    let too_large = vec![b'#'; (4 << 20) + 1];
    let cases = [
        (&b"version: 1\nports: {}\n# caf\xe9\n"[..], "byte 26 of", Some((3, 6))),
        (b"\xff\xfev\0e\0r\0", "byte 0 of", Some((1, 1))),
        (b"version: 1\nports: {} # \0\n", "unexpected character", Some((2, 13))),
        (&too_large, "larger than 4 MiB", None),
    ];
    for (bytes, message, place) in cases {
        let path = temporary_path("not-text");
        fs::write(&path, bytes).unwrap();
        let report = config::load(&path).unwrap_err();
        fs::remove_file(&path).unwrap();
        let [diagnostic] = report.diagnostics() else { panic!("{report}") };
        assert!(diagnostic.message.contains(message), "{}", diagnostic.message);
        assert_eq!(report.position(diagnostic), place, "{}", diagnostic.message);
    }
}
