//! Temporary.
#[path = "mutants/stories.rs"]
mod stories;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use ringway_sim::scenario::{Scenario, Stage};
use ringway_sim::stations;
use ringway_stack::mutants::Mutant;

#[test]
fn run() {
    let env = |n: &str, d: u64| std::env::var(n).ok().and_then(|v| v.parse().ok()).unwrap_or(d);
    let (from, max, threads) = (env("FROM", 31_000_000), env("MAX", 300), env("THREADS", 2));
    let only = std::env::var("ONLY").ok();
    let list: Vec<Mutant> = if only.as_deref() == Some("Healthy") { vec![Mutant::Healthy] } else {
        Mutant::ALL.iter().chain(Mutant::AT_LARGE).chain(Mutant::OUTSIDER).copied().filter(|m| only.as_ref().map_or_else(|| Mutant::OUTSIDER.contains(m), |o| o.split(',').any(|o| o == format!("{m:?}")))).collect() };
    set_hook(Box::new(|_| {}));
    let next = AtomicUsize::new(0);
    let lock = Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| loop {
                let Some(&mutant) = list.get(next.fetch_add(1, Ordering::SeqCst)) else { break };
                let (mut other, mut others, mut caught) = (String::new(), 0, None);
                let t = std::time::Instant::now();
                for seed in from..from + max {
                    let scenario = Scenario::of_seed(seed);
                    let run = catch_unwind(AssertUnwindSafe(|| {
                        if seed % 8 == 7 {
                            stories::all(seed, mutant);
                            (0..64).for_each(|death| {
                                stations::play(seed * 64 + death, mutant);
                            });
                        }
                        let mut stage = Stage::set(&scenario);
                        stage.infect(mutant);
                        stage.play()
                    }));
                    let Err(failure) = run else { continue };
                    let message = failure.downcast_ref::<String>().cloned().or_else(|| failure.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_else(|| "a panic without a message".to_owned());
                    if message.starts_with("checker ") {
                        caught = Some((seed, message));
                        break;
                    }
                    others += 1;
                    if other.is_empty() { other = format!("seed {seed}: {message}"); }
                }
                let _guard = lock.lock();
                let secs = t.elapsed().as_secs();
                match caught {
                    Some((seed, m)) => println!("CAUGHT {mutant:?} {} {secs}s {}", seed - from + 1, m.lines().next().unwrap_or("").chars().take(220).collect::<String>()),
                    None => println!("SURVIVED {mutant:?} {max} {secs}s others={others} {}", other.lines().next().unwrap_or("").chars().take(200).collect::<String>()),
                }
            });
        }
    });
}

#[test]
fn drills() {
    let env = |n: &str, d: u64| std::env::var(n).ok().and_then(|v| v.parse().ok()).unwrap_or(d);
    let only = std::env::var("ONLY").unwrap_or_default();
    let (from, max) = (env("FROM", 31_000_000), env("MAX", 400));
    let list: Vec<Mutant> = Mutant::OUTSIDER.iter().copied().chain([Mutant::Healthy]).filter(|m| only.is_empty() || only.split(',').any(|o| o == format!("{m:?}"))).collect();
    set_hook(Box::new(|_| {}));
    for mutant in list {
        let (mut count, mut first, mut names) = (0, None, std::collections::BTreeMap::<String, u32>::new());
        for seed in from..from + max {
            for number in 0..ringway_sim::drills::count() {
                if let Err(failure) = catch_unwind(|| ringway_sim::drills::play(number, seed, mutant)) {
                    let message = failure.downcast_ref::<String>().cloned().or_else(|| failure.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default();
                    count += 1;
                    let key: String = message.lines().next().unwrap_or("").rsplit(" (").next().unwrap_or("").split(" at ").next().unwrap_or("").to_owned();
                    *names.entry(key).or_default() += 1;
                    first.get_or_insert((seed, number, message));
                }
            }
        }
        let text = first.map_or(String::new(), |(s, n, m)| if mutant == Mutant::Healthy { format!("{s} {n} {m}") } else { format!("{s} {n} {}", m.lines().next().unwrap_or("").chars().take(160).collect::<String>()) });
        println!("{mutant:?}: {count} {names:?} {text}");
    }
}
