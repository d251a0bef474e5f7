//! Which address does what.

use serde_json::{Value, json};

use super::LOGIN;
use super::secrets::Taken;
use super::shapes;
use super::state::{Comment, State};
use crate::http::{Request, Response};

const PAGE_DEFAULT: usize = 30;

pub(super) fn answer(state: &mut State, request: &Request) -> Response {
    let parts: Vec<&str> = request.path.trim_matches('/').split('/').collect();
    match (request.method.as_str(), parts.as_slice()) {
        ("GET", ["user"]) => Response::new(200, shapes::account(LOGIN)),
        (method, ["repos", owner, name, rest @ ..]) => {
            of_repository(state, method, &format!("{owner}/{name}"), rest, request)
        }
        _ => missing(),
    }
}

fn of_repository(state: &mut State, method: &str, repository: &str, rest: &[&str], request: &Request) -> Response {
    match (method, rest) {
        (_, ["issues", "comments", id]) => id
            .parse()
            .map_or_else(|_| missing(), |id| comment(state, method, id, request)),
        (_, ["issues", number, rest @ ..]) => match number.parse() {
            Ok(number) if state.issue(repository, number).is_some() => {
                of_issue(state, method, repository, number, rest, request)
            }
            Ok(_) | Err(_) => missing(),
        },
        ("GET", ["collaborators", login, "permission"]) => {
            Response::new(200, shapes::permission(login, state.permission(login)))
        }
        ("GET", ["pulls", number, "files"]) => {
            let found = number.parse().ok().and_then(|number| state.issue(repository, number));
            match found.filter(|issue| issue.is_pull_request) {
                Some(issue) => paged(
                    issue.files.iter().map(|path| shapes::file(repository, path)).collect(),
                    request,
                ),
                None => missing(),
            }
        }
        (_, ["actions", "secrets", rest @ ..]) => secrets(state, method, repository, None, rest, request),
        (_, ["environments", environment, rest @ ..]) => {
            let known = (repository.to_owned(), (*environment).to_owned());
            if !state.environments.contains(&known) {
                return missing();
            }
            match (method, rest) {
                ("GET", []) => Response::new(200, shapes::environment(repository, environment)),
                (_, ["secrets", rest @ ..]) => secrets(state, method, repository, Some(environment), rest, request),
                _ => missing(),
            }
        }
        _ => missing(),
    }
}

fn of_issue(
    state: &mut State,
    method: &str,
    repository: &str,
    number: u64,
    rest: &[&str],
    request: &Request,
) -> Response {
    let labels = |state: &State| shapes::labels(repository, &state.labels(repository, number));
    match (method, rest) {
        ("GET", []) => Response::new(200, shapes::issue(state, repository, number)),
        ("GET", ["labels"]) => paged(labels(state), request),
        ("POST" | "PUT", ["labels"]) => {
            let Some(given) = names(&request.json()) else {
                return invalid("labels must be names");
            };
            if method == "PUT" {
                state.replace(repository, number, &given);
            } else {
                let given: Vec<&str> = given.iter().map(String::as_str).collect();
                state.relabel(LOGIN, repository, number, &given, &[]);
            }
            Response::new(200, json!(labels(state)))
        }
        ("DELETE", ["labels"]) => {
            state.replace(repository, number, &[]);
            Response::new(204, Value::Null)
        }
        ("GET", ["events"]) => {
            let of = state
                .events
                .iter()
                .filter(|event| event.repository == repository && event.number == number);
            paged(of.map(shapes::event).collect(), request)
        }
        ("GET", ["comments"]) => {
            let of = state.comments(repository, number);
            paged(of.iter().map(shapes::comment).collect(), request)
        }
        ("POST", ["comments"]) => {
            let body = request.json()["body"].as_str().map(str::to_owned);
            let Some(body) = body.filter(|body| !body.is_empty()) else {
                return invalid("body is missing");
            };
            let comment = Comment {
                id: state.id(),
                repository: repository.to_owned(),
                number,
                login: LOGIN.to_owned(),
                body,
                edits: 0,
            };
            state.comments.push(comment.clone());
            Response::new(201, shapes::comment(&comment))
        }
        _ => missing(),
    }
}

fn comment(state: &mut State, method: &str, id: u64, request: &Request) -> Response {
    let Some(comment) = state.comments.iter_mut().find(|comment| comment.id == id) else {
        return missing();
    };
    match (method, request.json()["body"].as_str()) {
        ("GET", _) => Response::new(200, shapes::comment(comment)),
        ("PATCH", Some(body)) => {
            body.clone_into(&mut comment.body);
            comment.edits += 1;
            Response::new(200, shapes::comment(comment))
        }
        _ => missing(),
    }
}

fn secrets(
    state: &mut State,
    method: &str,
    repository: &str,
    environment: Option<&str>,
    rest: &[&str],
    request: &Request,
) -> Response {
    let safe = state.safe(repository, environment);
    match (method, rest) {
        ("GET", ["public-key"]) => Response::new(200, json!({"key_id": safe.key_id(), "key": safe.public_key()})),
        ("GET", [name]) => match safe.open(name) {
            Some(_) => Response::new(200, shapes::secret(name)),
            None => missing(),
        },
        ("PUT", [name]) => {
            let given = request.json();
            let part = |name: &str| given[name].as_str().unwrap_or_default();
            match safe.take(name, part("encrypted_value"), part("key_id")) {
                Taken::Created => Response::new(201, json!({})),
                Taken::Updated => Response::new(204, Value::Null),
                Taken::Refused(why) => invalid(why),
            }
        }
        ("DELETE", [name]) if safe.remove(name) => Response::new(204, Value::Null),
        _ => missing(),
    }
}

/// GitHub takes the names bare or in an object, as text or as objects.
fn names(given: &Value) -> Option<Vec<String>> {
    let list = given.get("labels").unwrap_or(given).as_array()?;
    let name = |item: &Value| item.as_str().or_else(|| item["name"].as_str()).map(str::to_owned);
    list.iter().map(name).collect()
}

fn paged(all: Vec<Value>, request: &Request) -> Response {
    let number = |name: &str, otherwise: usize| {
        let given = request.query(name).and_then(|text| text.parse().ok());
        given.unwrap_or(otherwise).max(1)
    };
    let (size, page) = (number("per_page", PAGE_DEFAULT).min(100), number("page", 1));
    let last = all.len().div_ceil(size).max(1);
    let items: Vec<Value> = all.into_iter().skip((page - 1) * size).take(size).collect();
    let host = request.header("host").unwrap_or_default();
    let link = |page: usize, rel: &str| {
        format!(
            "<http://{host}{}?per_page={size}&page={page}>; rel=\"{rel}\"",
            request.path
        )
    };
    let response = Response::new(200, json!(items));
    if page < last {
        let links = format!("{}, {}", link(page + 1, "next"), link(last, "last"));
        return response.with("Link", links);
    }
    response
}

fn missing() -> Response {
    Response::new(
        404,
        json!({"message": "Not Found", "documentation_url": "https://docs.github.com/rest", "status": "404"}),
    )
}

fn invalid(why: &str) -> Response {
    let body = json!({
        "message": "Validation Failed", "documentation_url": "https://docs.github.com/rest",
        "errors": [{"code": "custom", "message": why}],
    });
    Response::new(422, body)
}
