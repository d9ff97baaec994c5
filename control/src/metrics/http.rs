//! `/metrics` and `/healthz` over HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

use crate::status::Running;

/// The format of the page, as Prometheus names it.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Why the metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another socket has the address.
    #[error("`metrics: listen`: {0} is in use by another program: stop it, or set another address")]
    InUse(SocketAddr),
    /// The host does not have the address.
    #[error("`metrics: listen`: {0} is not an address of this host: set one that is, or 127.0.0.1")]
    NotHere(SocketAddr),
    /// Something else.
    #[error("`metrics: listen`: cannot listen on {0}")]
    Other(SocketAddr, #[source] io::Error),
}

/// Takes the address.
///
/// # Errors
/// If it is taken, or not an address of this host.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse(address),
        io::ErrorKind::AddrNotAvailable => ListenError::NotHere(address),
        _ => ListenError::Other(address, error),
    })
}

/// Answers scrapes until the runtime ends.
pub async fn serve(listener: TcpListener, running: Arc<Running>) {
    let router =
        Router::new().route("/metrics", get(metrics)).route("/healthz", get(healthz)).with_state(running);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "metrics are no longer served");
    }
}

async fn metrics(State(running): State<Arc<Running>>) -> Response {
    // Workers are asked, which may take them a round: not on the thread that serves everybody.
    match spawn_blocking(move || super::render(&running)).await {
        Ok(Ok(page)) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], page).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn healthz(State(running): State<Arc<Running>>) -> Response {
    match spawn_blocking(move || running.check()).await {
        Ok(Ok(())) => "ok\n".into_response(),
        Ok(Err(error)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_taken_address_is_named_with_the_key_that_set_it() {
        let first = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = first.local_addr().unwrap();
        let error = listen(address).await.unwrap_err().to_string();
        assert!(error.contains(&address.to_string()) && error.contains("`metrics: listen`"), "{error}");
    }

    #[tokio::test]
    async fn a_scrape_names_its_format_and_a_stopping_switch_is_not_healthy() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Arc::new(Running::stopped("version: 1\nports: {}\n"))));
        let get = |path: &'static str| {
            spawn_blocking(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                write!(stream, "GET {path} HTTP/1.1\r\nHost: lockgate\r\nConnection: close\r\n\r\n").unwrap();
                io::read_to_string(stream).unwrap()
            })
        };
        let scrape = get("/metrics").await.unwrap();
        assert!(scrape.starts_with("HTTP/1.1 200 OK\r\n"), "{scrape}");
        assert!(scrape.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{scrape}");
        assert!(scrape.contains("\nlockgate_config_info{hash=\"0\"} 1\n"), "{scrape}");
        let health = get("/healthz").await.unwrap();
        assert!(
            health.starts_with("HTTP/1.1 503 ") && health.ends_with("the switch is stopping\n"),
            "{health}"
        );
    }

    #[tokio::test]
    async fn a_foreign_address_is_not_called_taken() {
        let error = listen("192.0.2.1:9478".parse().unwrap()).await.unwrap_err();
        assert!(matches!(error, ListenError::NotHere(_)), "{error}");
    }
}
