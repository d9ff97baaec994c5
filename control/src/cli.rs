//! The command line.

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Parser, Subcommand};

use crate::show::View;
use crate::status::{COMMIT, VERSION};

/// Where the daemon listens unless its topology says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/lockgate/lockgate.sock";

static VERSION_AND_COMMIT: LazyLock<String> = LazyLock::new(|| format!("{VERSION} ({COMMIT})"));

/// A virtual switch that holds every port to its bandwidth.
#[derive(Debug, Parser)]
#[command(name = "lockgate", version = VERSION_AND_COMMIT.as_str(), about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read a topology file and print what would be in effect, or everything that is wrong with it.
    Check {
        /// The topology, YAML.
        file: PathBuf,
    },
    /// Run the switch until SIGTERM or SIGINT.
    Run {
        /// The topology, YAML.
        file: PathBuf,
    },
    /// Show what the running switch does.
    Show {
        /// What to show.
        view: View,
        /// Print JSON instead of a table.
        #[arg(long)]
        json: bool,
        /// The running switch's socket, `api: socket` of its topology.
        #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
        socket: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn show_asks_the_default_socket_for_people() {
        let cli = Cli::try_parse_from(["lockgate", "show", "ports"]).unwrap();
        let Command::Show { view, json, socket } = cli.command else { panic!("not show: {cli:?}") };
        assert_eq!((view, json, socket), (View::Ports, false, PathBuf::from(DEFAULT_SOCKET)));
    }
}
