//! The routes.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Json, Router};
use serde::Serialize;
use tokio::net::UnixListener;
use tokio::task::spawn_blocking;

use crate::status::{NotServing, Running};

use super::socket::ApiListener;
use super::types::Failure;
use super::views;

/// Answers clients until the runtime ends; then the socket is removed.
pub async fn serve(listener: ApiListener, running: Arc<Running>) {
    let (socket, _removed_at_the_end) = listener.into_parts();
    let served = match UnixListener::from_std(socket) {
        Ok(socket) => axum::serve(socket, router(running)).await,
        Err(error) => Err(error),
    };
    if let Err(error) = served {
        tracing::error!(%error, "the API is no longer served");
    }
}

fn router(running: Arc<Running>) -> Router {
    Router::new()
        .route("/v1/status", view(|running| Ok(views::status(running))))
        .route("/v1/ports", view(|running| Ok(views::ports(running))))
        .route("/v1/groups", view(|running| Ok(views::groups(running))))
        .route("/v1/fdb", view(views::fdb))
        .route("/v1/shapers", view(|running| Ok(views::shapers(running))))
        .route("/v1/drops", view(|running| Ok(views::drops(running))))
        .fallback(|| async { failure(StatusCode::NOT_FOUND, "there is no such route") })
        .with_state(running)
}

fn view<T: Serialize + Send + 'static>(
    view: fn(&Running) -> Result<T, NotServing>,
) -> MethodRouter<Arc<Running>> {
    get(async move |State(running): State<Arc<Running>>| {
        // A worker may be asked, which takes it a round: not on the thread that serves everybody.
        match spawn_blocking(move || view(&running)).await {
            Ok(Ok(answer)) => Json(answer).into_response(),
            Ok(Err(error)) => failure(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
            Err(error) => failure(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    })
}

fn failure(status: StatusCode, error: &str) -> Response {
    (status, Json(Failure { error: error.to_owned() })).into_response()
}

#[cfg(test)]
mod tests {
    use super::super::client::{self, ClientError};
    use super::super::socket;
    use super::super::types;
    use super::*;
    use crate::show::{View, show};

    const TOPOLOGY: &str = "
version: 1
port_groups: { web: { vlan: 10, shaping: { port: { ingress: { average: 100 Mbit/s } } } } }
ports: { web1: { group: web, netdev: tap1 } }
";

    #[tokio::test]
    async fn client_and_server_understand_each_other() {
        let path = std::env::temp_dir().join(format!("lockgate-api-{}.sock", std::process::id()));
        let listener = socket::listen(&path).unwrap();
        let server = tokio::spawn(serve(listener, Arc::new(Running::stopped(TOPOLOGY))));
        let at = path.clone();
        spawn_blocking(move || {
            let ports = show(View::Ports, false, &at).unwrap();
            assert!(ports.contains("web1  web    netdev  waiting"), "{ports}");
            for view in [View::Status, View::Groups, View::Shapers, View::Drops] {
                show(view, false, &at).unwrap();
            }
            let shapers: Vec<types::Shaper> = serde_json::from_str(&show(View::Shapers, true, &at).unwrap()).unwrap();
            assert_eq!(shapers[0].average_bits_per_second, 100_000_000);
            let refused = |route| client::get(&at, route).unwrap_err();
            assert!(matches!(refused("/v1/fdb"), ClientError::Refused { error, .. } if error == "the switch is stopping"));
            assert!(matches!(refused("/v2"), ClientError::Refused { error, .. } if error == "there is no such route"));
        })
        .await
        .unwrap();
        server.abort();
        assert!(server.await.unwrap_err().is_cancelled());
        assert!(!path.exists(), "the socket goes with the server");
    }
}
