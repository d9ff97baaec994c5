//! Network namespaces: opening one as the topology names it, and working inside it.
//!
//! `setns` moves the calling thread for good, and a thread of an async executor must stay where it is, so all work
//! inside a namespace is done by a short-lived thread of its own ([`Namespace::run`]). What is opened there (sockets,
//! descriptors) belongs to the namespace and can be used from any thread afterwards.
//!
//! An open namespace file keeps the namespace alive after its last process, so a [`Namespace`] is never kept longer
//! than the step that needs it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use nix::sched::{CloneFlags, setns};

use crate::topology::Netns;

/// Where `ip netns` keeps its namespaces.
pub const NETNS_DIR: &str = "/run/netns";

/// An open network namespace.
#[derive(Debug)]
pub struct Namespace {
    file: File,
    /// How messages call it.
    label: String,
}

/// A namespace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// There is none of that name.
    #[error("{namespace} does not exist, {} is missing: {way_out}", path.display())]
    Missing {
        /// The namespace.
        namespace: String,
        /// Where it was looked for.
        path: PathBuf,
        /// What to do.
        way_out: String,
    },
    /// Its file cannot be opened.
    #[error("cannot open {namespace} at {}: {source}", path.display())]
    Open {
        /// The namespace.
        namespace: String,
        /// Its file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file is not one of a network namespace.
    #[error(
        "{namespace} is not there: its file exists but is not a network namespace, as after a reboot; delete the file \
         and make the namespace again"
    )]
    NotANamespace {
        /// The namespace.
        namespace: String,
    },
    /// The kernel does not let us in.
    #[error("cannot enter {namespace}: {source}; it takes CAP_SYS_ADMIN")]
    Enter {
        /// The namespace.
        namespace: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// No socket can be opened in it.
    #[error("cannot open a socket in {namespace}: {source}")]
    Socket {
        /// The namespace.
        namespace: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Namespace {
    /// Opens the namespace and makes sure that it can be entered.
    pub fn open(netns: &Netns) -> Result<Self, NetnsError> {
        let path = path(netns);
        let label = label(netns);
        let file = File::open(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => {
                NetnsError::Missing { namespace: label.clone(), path: path.clone(), way_out: way_out(netns) }
            }
            _ => NetnsError::Open { namespace: label.clone(), path: path.clone(), source },
        })?;
        let namespace = Self { file, label };
        namespace.run(|| ())?;
        Ok(namespace)
    }

    /// Runs `work` on a thread of its own inside the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        apart(|| setns(&self.file, CloneFlags::CLONE_NEWNET).map(|()| work())).map_err(|errno| match errno {
            nix::Error::EINVAL => NetnsError::NotANamespace { namespace: self.label.clone() },
            errno => NetnsError::Enter { namespace: self.label.clone(), source: errno.into() },
        })
    }

    /// Opens a socket that belongs to the namespace.
    pub fn open_socket<T: Send>(&self, open: impl FnOnce() -> io::Result<T> + Send) -> Result<T, NetnsError> {
        self.run(open)?.map_err(|source| NetnsError::Socket { namespace: self.label.clone(), source })
    }

    /// How messages call it, as in `network namespace web1`.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// The file of a namespace.
pub fn path(netns: &Netns) -> PathBuf {
    match netns {
        Netns::Name(name) => Path::new(NETNS_DIR).join(name),
        Netns::Path(path) => path.clone(),
        Netns::Pid(pid) => PathBuf::from(format!("/proc/{pid}/ns/net")),
    }
}

/// Runs `work` on a thread of its own and waits for it: blocking work is allowed there whatever the caller's thread is.
///
/// # Panics
/// If `work` does, or the system has no thread left.
pub fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

fn label(netns: &Netns) -> String {
    match netns {
        Netns::Name(name) => format!("network namespace {name}"),
        Netns::Path(path) => format!("network namespace {}", path.display()),
        Netns::Pid(pid) => format!("network namespace of process {pid}"),
    }
}

fn way_out(netns: &Netns) -> String {
    match netns {
        Netns::Name(name) => format!("make it with `ip netns add {name}`"),
        Netns::Path(_) => "correct the path, or start what makes it first".to_owned(),
        Netns::Pid(_) => "the process has ended or the number is wrong".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_namespace_is_named_with_the_way_out() {
        let error = Namespace::open(&Netns::Name("no-such-namespace".to_owned())).unwrap_err().to_string();
        assert_eq!(
            error,
            "network namespace no-such-namespace does not exist, /run/netns/no-such-namespace is missing: make it with \
             `ip netns add no-such-namespace`"
        );
        let error = Namespace::open(&Netns::Pid(u32::MAX)).unwrap_err();
        assert!(
            error.to_string().starts_with("network namespace of process 4294967295 does not exist"),
            "{error}"
        );
    }

    #[test]
    fn work_apart_may_block_and_hands_its_result_back() {
        let caller = thread::current().id();
        assert_ne!(apart(|| thread::current().id()), caller);
    }
}
