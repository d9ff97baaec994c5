//! Noticing that interfaces have changed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::sync::Notify;
use tokio::time::sleep;

/// Changes come in heaps, as when a container starts; what falls into this time is told once.
const COALESCE: Duration = Duration::from_millis(5);

/// Notifies when interfaces of the daemon's network namespace have come, gone or changed. It says that and no more: whoever
/// is notified lists the interfaces, so nothing is lost with a message that the kernel could not deliver.
///
/// To be called in a tokio runtime, before the first look at the interfaces.
///
/// # Errors
/// If the kernel gives no socket.
pub fn watch_links() -> io::Result<Arc<Notify>> {
    let (connection, _, mut messages) = new_multicast_connection(&[MulticastGroup::Link])?;
    tokio::spawn(connection);
    let changed = Arc::new(Notify::new());
    let notify = changed.clone();
    tokio::spawn(async move {
        while messages.next().await.is_some() {
            sleep(COALESCE).await;
            while let Some(Some(_)) = messages.next().now_or_never() {}
            notify.notify_one();
        }
        tracing::error!(
            "the kernel tells no more of changed interfaces; they are looked at every few seconds"
        );
    });
    Ok(changed)
}
