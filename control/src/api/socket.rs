//! The API's Unix socket: nobody but its owner can ever connect, a dead daemon's socket is replaced, a living one's is
//! not.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The socket, listening; its file is removed when this is dropped.
#[derive(Debug)]
pub struct ApiListener {
    socket: UnixListener,
    file: SocketFile,
}

/// The socket's file, if it is still the one that was made.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
}

/// Why the API cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A living daemon has it.
    #[error("another lockgate answers on {0}: stop it, or set another `api: socket`")]
    InUse(PathBuf),
    /// Something else is there.
    #[error("{0} is not a socket: remove it, or set another `api: socket`")]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("cannot {what} for the API (`api: socket`)")]
    Refused {
        /// What was tried, with its path.
        what: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Makes the socket at `path`, and the directories above it.
///
/// # Errors
/// If a living daemon has it, something else is there, or the system refuses.
pub fn listen(path: &Path) -> Result<ApiListener, SocketError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let refused = |what: &str, at: &Path| {
        let what = format!("{what} {}", at.display());
        move |source| SocketError::Refused { what, source }
    };
    let mut builder = DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o755)
        .create(directory)
        .map_err(refused("make the directory", directory))?;
    refuse_what_lives(path)?;

    // A new socket is open to everyone until its mode is set, so it is made behind a directory that is not, and moved
    // out when it is ready. The move also replaces a dead daemon's socket without a moment in which there is none.
    let hidden = directory.join(format!(".lg{}", std::process::id()));
    _ = fs::remove_dir_all(&hidden);
    DirBuilder::new().mode(0o700).create(&hidden).map_err(refused("make the directory", &hidden))?;
    let made = make_socket(&hidden.join("s"), path);
    _ = fs::remove_dir_all(&hidden);
    made.map_err(refused("make the socket", path))
}

/// Removes the socket, so that nobody reaches a daemon that is stopping.
pub fn remove(path: &Path) {
    // It may have been removed by hand, which is as good.
    _ = fs::remove_file(path);
}

fn refuse_what_lives(path: &Path) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => Err(SocketError::NotASocket(path.to_owned())),
        Ok(_) if UnixStream::connect(path).is_ok() => Err(SocketError::InUse(path.to_owned())),
        _ => Ok(()),
    }
}

fn make_socket(hidden: &Path, path: &Path) -> io::Result<ApiListener> {
    let socket = UnixListener::bind(hidden)?;
    fs::set_permissions(hidden, Permissions::from_mode(0o600))?;
    socket.set_nonblocking(true)?;
    let inode = fs::symlink_metadata(hidden)?.ino();
    fs::rename(hidden, path)?;
    Ok(ApiListener { socket, file: SocketFile { path: path.to_owned(), inode } })
}

impl ApiListener {
    /// The socket, and what removes its file when it is dropped.
    pub fn into_parts(self) -> (UnixListener, SocketFile) {
        (self.socket, self.file)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of its own for each test, gone at its end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("lockgate-{name}-{}", std::process::id()));
            _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn socket(&self) -> PathBuf {
            self.0.join("sub/lockgate.sock")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_the_owner_may_open_it_and_it_leaves_nothing_behind() {
        let scratch = Scratch::new("mode");
        let path = scratch.socket();
        let listener = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert!(UnixStream::connect(&path).is_ok());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "the hidden directory is gone");
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_living_daemon_keeps_its_socket() {
        let scratch = Scratch::new("live");
        let path = scratch.socket();
        let _first = listen(&path).unwrap();
        let error = listen(&path).unwrap_err().to_string();
        assert!(error.starts_with(&format!("another lockgate answers on {}", path.display())), "{error}");
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn a_killed_daemon_s_socket_is_replaced_and_not_removed_by_its_ghost() {
        let scratch = Scratch::new("stale");
        let path = scratch.socket();
        let (socket, ghost) = listen(&path).unwrap().into_parts();
        drop(socket);
        assert!(UnixStream::connect(&path).is_err(), "the file is there, nobody answers");
        let _second = listen(&path).unwrap();
        drop(ghost);
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn a_file_that_is_no_socket_is_not_touched() {
        let scratch = Scratch::new("file");
        let path = scratch.socket();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(listen(&path), Err(SocketError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
