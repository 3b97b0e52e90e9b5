//! Tests of the JSON interface and of access control.

use std::io::BufRead;

use serde_json::Value;

use crate::fixture::{Fixture, HOSTILE, S, series, small};
use crate::http::{get, head, open, request};
use trunkline_counters::counter::{RawValue, ValueKind};
use trunkline_web::server::MAX_SUBSCRIBERS;
use trunkline_web::{Error, Options, Server};

/// Checks that a value conforms to its schema: types, properties and lists.
fn conforms(value: &Value, schema: &Value, all: &Value, location: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return conforms(value, &all["components"]["schemas"][name], all, location);
    }
    if let Some(kinds) = schema["anyOf"].as_array() {
        let kind = if value.is_null() { &kinds[1] } else { &kinds[0] };
        return conforms(value, kind, all, location);
    }
    let is = |kind: &str| match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{location}: no type {other}"),
    };
    let fits = match &schema["type"] {
        Value::String(kind) => is(kind),
        Value::Array(kinds) => kinds.iter().any(|kind| is(kind.as_str().unwrap())),
        _ => panic!("{location}: the schema has no type"),
    };
    assert!(fits, "{location}: {value} is not {}", schema["type"]);
    if let Some(list) = schema["enum"].as_array() {
        assert!(list.contains(value), "{location}: {value}");
    }
    if let Some(list) = value.as_array() {
        list.iter().for_each(|one| conforms(one, &schema["items"], all, &format!("{location}[]")));
    }
    if let (Some(object), Some(known)) = (value.as_object(), schema["properties"].as_object()) {
        for name in known.keys() {
            assert!(object.contains_key(name), "{location} has no {name}");
        }
        for (name, one) in object {
            let schema = known.get(name).unwrap_or_else(|| panic!("{location}.{name} is not described"));
            conforms(one, schema, all, &format!("{location}.{name}"));
        }
    } else if let Some(object) = value.as_object() {
        object.values().for_each(|one| conforms(one, &schema["additionalProperties"], all, location));
    }
}

#[test]
fn every_response_conforms_to_its_schema() {
    let fixture = small();
    let served = fixture.serve();
    let described = get(served.address, "/api/openapi.json").json();
    let mut seen = 0;
    for (path, about) in described["paths"].as_object().unwrap() {
        let reply = &about["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        if reply["$ref"].is_null() {
            continue;
        }
        let examples = about["get"]["parameters"].as_array().unwrap().iter();
        let parameters: Vec<String> = examples
            .filter_map(|one| Some(format!("{}={}", one["name"].as_str()?, one["example"].as_str()?)))
            .chain(path.ends_with("/view").then(|| format!("from_ns={}&to_ns={}", 990 * S, 1_100 * S)))
            .chain(path.ends_with("points").then(|| format!("from_ns={}&to_ns={}", 990 * S, 1_100 * S)))
            .collect();
        let answer = get(served.address, &format!("{path}?{}", parameters.join("&")));
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        conforms(&answer.json(), reply, &described, path);
        let refused = get(served.address, &format!("{path}?nonsense=1"));
        assert_eq!(refused.status, 400, "{path}");
        conforms(&refused.json(), &described["components"]["schemas"]["Error"], &described, path);
        seen += 1;
    }
    assert_eq!(seen, 10);
}

#[test]
fn prometheus_reads_the_latest_values() {
    let fixture = small();
    let served = fixture.serve();
    let page = get(served.address, "/metrics");
    assert_eq!(page.status, 200);
    let text = String::from_utf8(page.body).unwrap();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    assert!(samples.clone().count() > 3, "{text}");
    assert!(
        samples.clone().all(|line| line.rsplit(' ').next().is_some_and(|n| n.parse::<f64>().is_ok())),
        "{text}"
    );
    assert_eq!(get(served.address, "/metrics?nonsense=1").status, 400);
}

#[test]
fn views_and_points_return_the_counted_values() {
    let fixture = small();
    let served = fixture.serve();
    let view = |ids: &str, buckets: usize| {
        let span = format!("from_ns={}&to_ns={}", 1_000 * S + S / 50, 1_099 * S + S / 50);
        get(served.address, &format!("/api/view?series={ids}&{span}&buckets={buckets}")).json()
    };
    let whole = view("1,2,3", 1);
    assert_eq!(whole["views"][0]["sum"], serde_json::json!([99_000]));
    assert_eq!(whole["views"][1]["sum"], serde_json::json!([49_500]));
    assert_eq!(whole["views"][2]["sum"], serde_json::json!([90_000_000_000i64]));
    assert_eq!(whole["views"][2]["samples"], serde_json::json!([90]));
    let parts = view("1", 33);
    let one = &parts["views"][0];
    let numbers = |name: &str| one[name].as_array().unwrap().iter().map(|n| n.as_f64()).collect::<Vec<_>>();
    assert_eq!(numbers("sum").into_iter().flatten().sum::<f64>(), 99_000.0);
    for ((low, high), most) in numbers("low").into_iter().zip(numbers("high")).zip(numbers("most")) {
        let (low, high, most) = (low.unwrap(), high.unwrap(), most.unwrap());
        assert!(low <= high && high <= 1_000.0 && 1_000.0 <= most, "{low} {high} {most}");
    }
    let silent = one["events"].as_array().unwrap().iter().filter(|e| e["names"][0] == "silent").count();
    assert!((3..=5).contains(&silent), "{}", one["events"]);
    let points =
        get(served.address, &format!("/api/points?series=1&from_ns=0&to_ns={}&most=60", 2_000 * S)).json();
    let list = points["points"].as_array().unwrap();
    assert_eq!((list.len(), points["next_ns"].as_i64()), (60, Some(1_060 * S + S / 50)));
    assert_eq!(
        (&list[50]["answered_ns"], &list[50]["events"]),
        (&Value::Null, &serde_json::json!(["silent"]))
    );
    assert_eq!((list[1]["growth"]["by"].as_u64(), list[1]["value"].as_u64()), (Some(1_000), Some(2_000)));
}

#[test]
fn devices_and_routes_are_returned() {
    let fixture = small();
    let served = fixture.serve();
    let json = |path: &str| get(served.address, path).json();
    let devices = json("/api/devices");
    assert_eq!(devices["devices"], serde_json::json!([HOSTILE, "alpha", "core1", "s1", "s2"]));
    let hosts = json("/api/hosts");
    let host = |name: &str| hosts["hosts"].as_array().unwrap().iter().find(|h| h["device"] == name).unwrap();
    assert_eq!((&host("alpha")["pinged"], &host("alpha")["delay"]["value"]), (&true.into(), &250_000.into()));
    assert_eq!((&host("core1")["ports"], &host("core1")["active"]), (&1.into(), &1.into()));
    assert_eq!((&host("core1")["name"], &host("s1")["channels"]), (&"core1.example".into(), &2.into()));
    let latest = json("/api/latest?device=core1");
    let port = &latest["objects"][0];
    assert_eq!((&port["object"], &port["texts"]["state"]["text"]), (&"port/eth0".into(), &"up".into()));
    let newest = &port["series"][0];
    assert_eq!((&newest["value"], &newest["growth"]["by"]), (&100_000.into(), &1_000.into()));
    let path = json("/api/path?from=alpha&to=omega");
    let hop = |device: &str, enters: &str, leaves: &str| serde_json::json!({ "device": device, "in": enters, "out": leaves });
    let hops = [hop("s1", "vc/a/0.33", "vc/b/2.40"), hop("s2", "vc/x/2.40", "vc/y/0.99")];
    assert_eq!(path["ways"], serde_json::json!([{ "hops": hops, "ends": null }]));
}

#[test]
fn the_last_answer_of_a_silent_device_is_found() {
    let mut fixture = Fixture::new();
    let all = vec![series("port/eth0/in/octets", ValueKind::Counter64, "octets")];
    let mut table = fixture.table("core1", "interfaces", S, 1_000 * S, all);
    (0..700).for_each(|_| fixture.poll(&mut table, &[10], &[]));
    for _ in 0..900 {
        fixture.silence(&mut table);
        fixture.flush();
    }
    let served = fixture.serve();
    let hosts = get(served.address, "/api/hosts").json();
    let host = &hosts["hosts"][0];
    assert_eq!((&host["responding"], &host["asked_ns"]), (&false.into(), &(2_599 * S).into()));
    let seen = host["seen_ns"].as_i64().unwrap();
    assert!((1_699 * S..=1_701 * S).contains(&seen), "{seen}");
}

/// As stored by `trunkline monitor poll`.
#[test]
fn a_ping_without_an_answer_is_unreachable() {
    let mut fixture = Fixture::new();
    let gauge = |name: &str, unit: &str| series(name, ValueKind::Gauge, unit);
    let all =
        vec![gauge("host/responding", ""), gauge("host/delay", "ns"), gauge("host/seen", "ms since 1970")];
    let mut table = fixture.table("alpha", "ping", S, 1_000 * S, all);
    let seen = Some(RawValue::from_gauge(1_000_500));
    fixture
        .answer(&mut table, vec![Some(RawValue::from_gauge(1)), Some(RawValue::from_gauge(250_000)), seen]);
    fixture.flush();
    let served = fixture.serve();
    let host = || get(served.address, "/api/hosts").json()["hosts"][0].clone();
    let is = |host: &Value, responding: bool| {
        assert_eq!((&host["responding"], &host["pinged"]), (&responding.into(), &true.into()), "{host}");
        assert_eq!(host["seen_ns"], 1_000_500_000_000i64, "{host}");
    };
    is(&host(), true);
    for _ in 0..100 {
        fixture.answer(&mut table, vec![Some(RawValue::from_gauge(0)), None, seen]);
    }
    fixture.flush();
    is(&host(), false);
}

#[test]
fn invalid_requests_get_an_error() {
    let fixture = small();
    let served = fixture.serve();
    for (status, path) in [
        (400, "/api/view"),
        (400, "/api/view?series=1,2,3,4,5,6,7,8,9"),
        (400, "/api/view?series=x"),
        (400, "/api/view?series=1&buckets=4097"),
        (400, "/api/view?series=1&buckets=0"),
        (400, "/api/view?series=1&from_ns=2&to_ns=1"),
        (400, "/api/view?series=1&from_ns=99999999999999999999&to_ns=1"),
        (400, "/api/view?series=1&series=2"),
        (400, "/api/view?series=%"),
        (400, "/api/points?series=1,2"),
        (400, "/api/points?series=1&most=10001"),
        (400, "/api/objects"),
        (400, "/api/series?device=core1"),
        (400, "/api/live"),
        (404, "/api/view?series=99999"),
        (404, "/api/live?series=99999"),
        (404, "/api/objects?device=unknown"),
        (404, "/api/latest?device="),
        (404, "/api/path?from=unknown&to=omega"),
        (404, "/nothing"),
        (404, "/../Cargo.toml"),
        (404, "/js/"),
    ] {
        let reply = get(served.address, path);
        assert_eq!(reply.status, status, "{path}: {}", String::from_utf8_lossy(&reply.body));
        assert!(
            !reply.error().is_empty() && reply.header("content-type") == Some("application/json"),
            "{path}"
        );
    }
    let reply = request(served.address, "POST", "/api/devices", &[], "x");
    assert_eq!(reply.status, 405);
    let long = get(served.address, &format!("/api/view?series={}", "1".repeat(9_000)));
    assert_eq!(long.status, 400);
    // The extreme timestamps are valid.
    let all = format!("/api/view?series=1&from_ns={}&to_ns={}", i64::MIN, i64::MAX);
    assert_eq!(get(served.address, &all).status, 200);
}

#[test]
fn access_needs_a_local_name_or_a_token() {
    let fixture = small();
    let served = fixture.serve();
    let to = served.address;
    let stranger = request(to, "GET", "/", &[("Host", "evil.example")], "");
    assert_eq!(stranger.status, 421);
    let foreign = |path: &str| request(to, "GET", path, &[("Sec-Fetch-Site", "cross-site")], "").status;
    assert_eq!([foreign("/api/devices"), foreign("/")], [403, 200], "a link may lead here, a page not ask");
    let page = get(to, "/");
    assert_eq!(page.status, 200);
    assert!(page.header("content-security-policy").unwrap().contains("script-src 'self'"));
    assert!(!String::from_utf8_lossy(&page.body).contains("style="), "the policy forbids styles within");
    assert!(page.header("access-control-allow-origin").is_none());

    let secret = "correct-horse-battery";
    let closed = fixture.serve_with(Some(secret));
    let to = closed.address;
    assert_eq!(get(to, "/").status, 401);
    assert_eq!(get(to, "/api/devices?token=wrong-wrong-wrong-wrong").status, 401);
    let exchange = get(to, &format!("/?token={secret}"));
    assert_eq!((exchange.status, exchange.header("location")), (303, Some("/")));
    let cookie = exchange.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(request(to, "GET", "/api/devices", &[("Cookie", cookie)], "").status, 200);
    let bearer = format!("Bearer {secret}");
    assert_eq!(request(to, "GET", "/api/devices", &[("Authorization", &bearer)], "").status, 200);
    let other = get(to, &format!("//evil.example/?token={secret}"));
    assert_eq!((other.status, other.header("location")), (303, Some("/")), "no way to lead elsewhere");

    let options = |listen: &str| Options {
        archive: fixture.path.clone().into(),
        listen: listen.parse().unwrap(),
        token: None,
    };
    assert!(matches!(Server::bind(&options("0.0.0.0:0")), Err(Error::TokenRequired(_))));
    let none = Options { archive: fixture.folder.path().join("none").into(), ..options("127.0.0.1:0") };
    assert!(matches!(Server::bind(&none), Err(Error::Archive(_))));
}

#[test]
fn subscribers_receive_every_flush_and_are_limited() {
    let mut fixture = Fixture::new();
    let all = vec![series("port/eth0/in/octets", ValueKind::Counter64, "octets")];
    let mut table = fixture.table("core1", "interfaces", S, 1_000 * S, all);
    fixture.poll(&mut table, &[10], &[]);
    fixture.flush();
    let served = fixture.serve();
    let described = get(served.address, "/api/openapi.json").json();
    let mut stream = open(served.address, "GET", "/api/live?series=1", &[], "");
    let (status, headers) = head(&mut stream);
    assert_eq!(status, 200);
    assert!(headers.contains(&("content-type".into(), "text/event-stream".into())), "{headers:?}");
    fixture.poll(&mut table, &[10], &[]);
    fixture.flush();
    fixture.silence(&mut table);
    fixture.flush();
    let mut seen = Vec::new();
    let mut lines = stream.lines();
    while seen.len() < 2 {
        let line = lines.next().expect("the stream continues").unwrap();
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let news: Value = serde_json::from_str(data).unwrap();
        conforms(&news, &described["components"]["schemas"]["PointsEvent"], &described, "news");
        seen.extend(news["series"][0]["points"].as_array().unwrap().clone());
    }
    assert_eq!((&seen[0]["growth"]["by"], &seen[0]["value"]), (&10.into(), &20.into()));
    assert_eq!((&seen[1]["answered_ns"], &seen[1]["events"][0]), (&Value::Null, &"silent".into()));

    let watch = || {
        let mut stream = open(served.address, "GET", "/api/live?series=1", &[], "");
        (head(&mut stream).0, stream)
    };
    let more: Vec<_> = (1..MAX_SUBSCRIBERS).map(|_| watch()).collect();
    assert!(more.iter().all(|(status, _)| *status == 200));
    assert_eq!(watch().0, 503);
    assert_eq!(get(served.address, "/api/devices").status, 200, "others are still answered");
}
