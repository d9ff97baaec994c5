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
