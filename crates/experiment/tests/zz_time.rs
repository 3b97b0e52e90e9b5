use trunkline_experiment::*;
#[test]
fn big() {
    let n = 4 << 20;
    let rep = |s: &str| s.repeat(n / s.len());
    let conn = "connection { xmt = a; rcv = b; protocol = udp; test = full; }\n";
    let many = { let mut t = String::from("experiment { network {"); let mut i = 0; while t.len() < n / 2 { t += &format!("host h{i}; link h{i} - x{i} (rat = 1);"); i += 1; } t += "} "; while t.len() < n - 200 { t += &format!("expect h{i}.lost = 0; connection {{ xmt = q{i}; rcv = h{i}; protocol = tcp; test=full;}}\n"); i += 1; } t + "}" };
    let tests = { let mut t = String::new(); let mut i = 0u64; while t.len() < n - 200 { t += &format!("test a {{ type=full; protocol=tcp; own=a:{}; peer=a:{}; }}\n", 1 + i % 30000, 30001 + i % 30000); i += 1; } t };
    for (name, text) in [("conn", rep(conn)), ("braces", rep("{")), ("open", rep("serial{")), ("semi", rep(";")), ("word", rep("x")), ("quote", rep("\"")), ("paren", rep("a=(")), ("colon", rep("::")), ("hex", rep("a:")), ("num", rep("1e+")), ("at", rep("@ ")), ("comment", rep("/*")), ("args", "connection{xmt=a(".to_owned() + &rep("k=1,")), ("parts", "connection{xmt=a".to_owned() + &rep(":1") ), ("dots", "connection{xmt=a;} expect ".to_owned() + &rep(".a")), ("many", many), ("tests", tests)] {
        let text = &text[..text.len().min(n)];
        let t = std::time::Instant::now();
        let s = Source { name: "x", text, folder: None };
        let p = parse(&s);
        let a = t.elapsed();
        let r = render(&s, &p.diagnostics, false);
        let b = t.elapsed();
        let l = p.plan.map(|p| plan_text(&p).len());
        eprintln!("{name:8} parse {a:?} render {:?} print {:?} diags {} text {} plan {l:?}", b - a, t.elapsed() - b, p.diagnostics.len(), r.len());
    }
}
