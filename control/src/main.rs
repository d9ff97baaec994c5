//! The `lockgate` command.

use std::error::Error;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use lockgate_control::cli::{Cli, Command};
use lockgate_control::{check, daemon, show};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lockgate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr());
    match command {
        Command::Check { file } => {
            let colours = err.is_terminal();
            return Ok(check::run(&file, &mut out, &mut err, colours)?);
        }
        Command::Run { file } => {
            // The daemon logs from several threads: none may find the standard output taken.
            drop(out);
            log_to_stderr();
            daemon::run(&file)?;
        }
        Command::Show { view, json, socket } => out.write_all(show::show(view, json, &socket)?.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// `RUST_LOG` says what is logged; without it, `info` and above.
fn log_to_stderr() {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    let colours = io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(colours).init();
}

/// Whoever reads the output has seen enough, as `head` does.
fn is_closed_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
