use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::state::Focus;
use super::*;
use crate::stats::tests::processes;

/// After two samples, a second apart.
fn app() -> App {
    let mut app = App::new(Duration::from_secs(1), Key::Fd, Filter::default());
    let taken = Instant::now();
    for second in 0..2 {
        app.take(Sample { taken: taken + Duration::from_secs(second), processes: processes(second + 1) });
    }
    app
}

fn press(app: &mut App, keys: &str) -> Vec<After> {
    let code = |c: char| match c {
        '\n' => KeyCode::Enter,
        '\t' => KeyCode::Tab,
        'v' => KeyCode::Down,
        '^' => KeyCode::Up,
        '\u{1b}' => KeyCode::Esc,
        '\u{8}' => KeyCode::Backspace,
        c => KeyCode::Char(c),
    };
    keys.chars().map(|c| app.press(KeyEvent::new(code(c), KeyModifiers::NONE))).collect()
}

fn screen(app: &App) -> String {
    screen_of(app, 130)
}

fn screen_of(app: &App, width: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, 36)).unwrap();
    terminal.draw(|frame| draw::draw(frame, app)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn the_screen() {
    insta::assert_snapshot!("screen", screen(&app()));
}

/// All columns are there: those that are wide are squeezed.
#[test]
fn the_screen_with_eighty_columns() {
    insta::assert_snapshot!("narrow", screen_of(&app(), 80));
}

#[test]
fn a_socket_in_detail() {
    let mut app = app();
    press(&mut app, "\n v\n ");
    assert!(app.detail && app.focus == Focus::Sockets);
    insta::assert_snapshot!("detail", screen(&app));
}

#[test]
fn nobody_is_there() {
    let mut app = App::new(Duration::from_secs(1), Key::Fd, Filter::default());
    app.take(Sample { taken: Instant::now(), processes: Vec::new() });
    assert!(screen(&app).contains("no process of this user"));
    press(&mut app, "v\t^s\n");
    screen(&app);
}

#[test]
fn sockets_are_sorted_and_filtered() {
    let mut app = app();
    let fds = |app: &App| app.sockets().iter().map(|socket| socket.fd).collect::<Vec<_>>();
    assert_eq!(fds(&app), [5, 6, 7, 8]);
    press(&mut app, "s");
    assert_eq!((app.sort, fds(&app)[0]), (Key::Rx, 6));
    press(&mut app, "/kernelx\u{8}\n");
    assert_eq!(fds(&app), [8]);
    press(&mut app, "/udp\u{1b}");
    assert_eq!(fds(&app), [8], "what was typed and given up does not count");
    press(&mut app, "\u{1b}");
    assert_eq!(fds(&app).len(), 4);
}

#[test]
fn processes_are_selected_and_gone_ones_forgotten() {
    let mut app = app();
    assert_eq!(app.process, Some(4711));
    press(&mut app, "v");
    assert_eq!(app.process, Some(4712));
    press(&mut app, "vv^");
    assert_eq!(app.process, Some(4711));
    press(&mut app, "v");
    let left = processes(3).into_iter().filter(|process| process.pid == 4711).collect();
    app.take(Sample { taken: Instant::now(), processes: left });
    assert_eq!(app.process, Some(4711));
    assert_eq!(app.histories.len(), 1);
}

#[test]
fn a_pause_keeps_what_is_shown() {
    let mut app = app();
    press(&mut app, "p");
    app.take(Sample { taken: Instant::now(), processes: Vec::new() });
    assert!(app.selected().is_some() && screen(&app).contains("paused"));
}

#[test]
fn keys_change_the_interval_and_end() {
    let mut app = app();
    assert_eq!(press(&mut app, "+-q"), [After::Interval(Duration::from_millis(500)), After::Interval(Duration::from_secs(1)), After::End]);
    press(&mut app, "++++++");
    assert_eq!(app.interval, Duration::from_millis(100));
    assert_eq!(app.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), After::End);
}

#[test]
fn small_terminals_are_drawn_on() {
    let mut app = app();
    press(&mut app, "?");
    for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw::draw(frame, &app)).unwrap();
    }
}
