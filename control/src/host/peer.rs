//! Finding the far end of a veth that Lockgate did not make.
//!
//! Netlink names the far end's namespace by a number that only this namespace knows. Which namespace that is takes a
//! look at those that can be reached: the named ones, then those of all processes.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::error::{PortError, Step};
use super::ethtool::Ethtool;
use super::link::Link;
use super::netlink::Netlink;
use super::netns::{self, NETNS_DIR, Namespace};
use crate::topology::Netns;

/// The far end of a veth.
#[derive(Debug)]
pub struct Peer {
    /// The interface.
    pub link: Link,
    /// Its namespace, or `None` if that is the daemon's own.
    pub namespace: Option<Namespace>,
}

/// The namespaces that can be reached, by the number this one knows them under. Names, not open files: an open file
/// would keep a namespace alive, and there may be thousands.
#[derive(Debug, Default)]
pub struct Namespaces(HashMap<i32, Netns>);

impl Peer {
    /// The far end of `link`, or `None` if its namespace cannot be reached from here.
    pub fn find(link: &Link, netlink: &Netlink, namespaces: &Namespaces) -> Result<Option<Self>, PortError> {
        let Some(peer) = link.peer else { return Ok(None) };
        let Some(id) = peer.namespace_id else {
            let found =
                netlink.link_by_index(peer.index).step(|| format!("look up the far end of {}", link.name))?;
            return Ok(found.map(|link| Self { link, namespace: None }));
        };
        let Some(netns) = namespaces.0.get(&id) else { return Ok(None) };
        // The process may have ended since the scan and its number may be another's: only the link that points back at
        // ours is the far end.
        let Ok(namespace) = Namespace::open(netns) else { return Ok(None) };
        let inside = namespace.open_socket(Netlink::open)?;
        let found =
            inside.link_by_index(peer.index).step(|| format!("look up the far end of {}", link.name))?;
        Ok(found.filter(|far| far.is_peer_of(link)).map(|link| Self { link, namespace: Some(namespace) }))
    }

    /// A socket to change its offloads with.
    pub fn ethtool(&self) -> Result<Ethtool, PortError> {
        match &self.namespace {
            Some(namespace) => Ok(namespace.open_socket(Ethtool::open)?),
            None => Ethtool::open().step(|| "open a control socket".to_owned()),
        }
    }

    /// Where it is and what it is called, for messages.
    pub fn description(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} in {}", self.link.name, namespace.label()),
            None => self.link.name.clone(),
        }
    }
}

impl Namespaces {
    /// Looks at every namespace that has a name or a process. What disappears meanwhile is left out.
    pub fn scan(netlink: &Netlink) -> Self {
        let named = names_in(NETNS_DIR).map(Netns::Name);
        let of_processes = names_in("/proc").filter_map(|name| name.parse().ok()).map(Netns::Pid);
        let mut seen = HashSet::new();
        let mut found = Self::default();
        for netns in named.chain(of_processes) {
            let Ok(file) = fs::metadata(netns::path(&netns)) else { continue };
            if !seen.insert((file.dev(), file.ino())) {
                continue;
            }
            let Ok(namespace) = Namespace::open(&netns) else { continue };
            if let Ok(Some(id)) = netlink.namespace_id(&namespace) {
                found.0.insert(id, netns);
            }
        }
        found
    }
}

fn names_in(directory: &str) -> impl Iterator<Item = String> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
}
