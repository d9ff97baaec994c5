//! The command line's end of the API.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::types::Failure;

/// A daemon that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why there is no answer. The text is one line and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error(
        "cannot reach lockgate at {socket} ({reason}): is lockgate running? `lockgate run FILE` starts it, `--socket PATH` names another socket"
    )]
    NotRunning {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// The socket is somebody else's.
    #[error("{0} belongs to another user: run this command as the user that runs lockgate, most likely root")]
    NotAllowed(PathBuf),
    /// It does not answer.
    #[error("lockgate at {0} does not answer: see its log, or restart it")]
    Hangs(PathBuf),
    /// It answers that it cannot.
    #[error("lockgate at {socket} says: {error}")]
    Refused {
        /// The socket.
        socket: PathBuf,
        /// Its words.
        error: String,
    },
    /// It does not speak as expected.
    #[error("what answers at {socket} is not this version of lockgate: {reason}")]
    NotLockgate {
        /// The socket.
        socket: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// This process could not even try.
    #[error("cannot start a client: {0}")]
    Client(io::Error),
}

/// Asks the daemon at `socket` for `route`; its answer, as JSON.
///
/// # Errors
/// If it is not reached, does not answer, or answers that it cannot.
pub fn get(socket: &Path, route: &str) -> Result<String, ClientError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ClientError::Client)?;
    let answer = async { timeout(PATIENCE, request(socket, route)).await };
    runtime.block_on(answer).map_err(|_| ClientError::Hangs(socket.to_owned()))?
}

async fn request(socket: &Path, route: &str) -> Result<String, ClientError> {
    let stream = UnixStream::connect(socket).await.map_err(|reason| match reason.kind() {
        io::ErrorKind::PermissionDenied => ClientError::NotAllowed(socket.to_owned()),
        _ => ClientError::NotRunning { socket: socket.to_owned(), reason },
    })?;
    let (status, body) = exchange(stream, route)
        .await
        .map_err(|error| ClientError::NotLockgate { socket: socket.to_owned(), reason: error.to_string() })?;
    let body = String::from_utf8_lossy(&body).into_owned();
    if status.is_success() {
        return Ok(body);
    }
    let error = serde_json::from_str(&body).map_or_else(|_| status.to_string(), |Failure { error }| error);
    Err(ClientError::Refused { socket: socket.to_owned(), error })
}

async fn exchange(
    stream: UnixStream,
    route: &str,
) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(route).header(header::HOST, "lockgate").body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    Ok((response.status(), response.into_body().collect().await?.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_daemon_the_socket_and_the_way_out_are_named_in_one_line() {
        let error = get(Path::new("/nonexistent/lockgate.sock"), "/v1/ports").unwrap_err().to_string();
        for part in ["/nonexistent/lockgate.sock", "is lockgate running?", "lockgate run FILE", "--socket"] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(error.lines().count(), 1);
    }
}
