use proptest::prelude::*;

use super::*;

fn header() -> impl Strategy<Value = Header> {
    let words = (any::<[u32; 2]>(), any::<[u64; 6]>(), "[a-z0-9./-]{0,107}");
    words.prop_map(|([pid, namespace], [version, len, checksum, answers, taken_ns, started], control)| Header {
        pid,
        birth: Birth { namespace, started },
        version,
        len,
        checksum,
        answers,
        taken_ns,
        control,
    })
}

fn request() -> impl Strategy<Value = Request> {
    let words = (1..u64::MAX, any::<Option<u8>>(), any::<Option<u8>>(), any::<Option<(i32, u8)>>());
    words.prop_map(|(number, log_level, log_details, dump)| Request { number, log_level, log_details, dump })
}

proptest! {
    #[test]
    fn headers_survive_the_file(header in header()) {
        prop_assert_eq!(Header::decode(&header.encode()), Some(header));
    }

    #[test]
    fn requests_survive_the_file(request in request()) {
        prop_assert_eq!(Request::decode(&request.encode()), Some(request));
    }

    #[test]
    fn a_request_of_which_a_part_is_missing_is_none(old in request(), new in request(), cut in 1_usize..40) {
        let (old, new) = (old.encode(), new.encode());
        let mut torn = new;
        torn[cut..].copy_from_slice(&old[cut..]);
        let whole = torn == new || torn == old;
        prop_assert!(whole || Request::decode(&torn).is_none());
    }

    #[test]
    fn any_bytes_are_a_header_or_none(bytes in proptest::collection::vec(any::<u8>(), HEADER.end), is_ours in any::<bool>()) {
        let mut bytes: [u8; HEADER.end] = bytes.try_into().unwrap();
        if is_ours {
            bytes[..16].copy_from_slice(&Header::default().encode()[..16]);
        }
        if let Some(header) = Header::decode(&bytes) {
            prop_assert!(header.control.len() <= NAME_MAX);
        }
    }
}

#[test]
fn nobody_asked_is_no_request() {
    assert_eq!(Request::decode(&[0; 40]), None);
}

#[test]
fn other_versions_are_refused() {
    let mut bytes = Header::default().encode();
    bytes[8] += 1;
    assert_eq!(Header::decode(&bytes), None);
}

/// The parts do not overlap.
const _: () = assert!(NAME + NAME_MAX <= HEADER.end && HEADER.end <= REQUEST.start && REQUEST.end <= BODY);
