//! `lockgate show`: asks the running daemon and prints tables for people, or the API's JSON for programs.

mod human;
mod table;
mod views;

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::api::client::{self, ClientError};

/// What can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum View {
    /// The daemon and its configuration.
    Status,
    /// Ports, their state and their traffic.
    Ports,
    /// Port groups and the traffic of all their ports.
    Groups,
    /// The MAC table.
    Fdb,
    /// Shapers: configured rates, credit and what waits.
    Shapers,
    /// What was dropped, where and why.
    Drops,
}

/// The view from the daemon at `socket`, ready to print.
///
/// # Errors
/// If the daemon is not reached or cannot answer.
pub fn show(view: View, json: bool, socket: &Path) -> Result<String, ClientError> {
    let answer = client::get(socket, route(view))?;
    if json {
        return Ok(answer + "\n");
    }
    match view {
        View::Status => Ok(views::status(&read(&answer, socket)?)),
        View::Ports => Ok(views::ports(&read::<Vec<_>>(&answer, socket)?)),
        View::Groups => Ok(views::groups(&read::<Vec<_>>(&answer, socket)?)),
        View::Fdb => Ok(views::fdb(&read(&answer, socket)?)),
        View::Shapers => Ok(views::shapers(&read::<Vec<_>>(&answer, socket)?)),
        View::Drops => Ok(views::drops(&read::<Vec<_>>(&answer, socket)?)),
    }
}

const fn route(view: View) -> &'static str {
    match view {
        View::Status => "/v1/status",
        View::Ports => "/v1/ports",
        View::Groups => "/v1/groups",
        View::Fdb => "/v1/fdb",
        View::Shapers => "/v1/shapers",
        View::Drops => "/v1/drops",
    }
}

fn read<T: DeserializeOwned>(answer: &str, socket: &Path) -> Result<T, ClientError> {
    let not_lockgate = |error: serde_json::Error| ClientError::NotLockgate {
        socket: socket.to_owned(),
        reason: error.to_string(),
    };
    serde_json::from_str(answer).map_err(not_lockgate)
}
