//! A value that must not be seen, in whatever form a system repeats it: as it is, or as it travelled there.

use crate::audit::redact::{REPLACEMENT, forms};

/// A text in which a value does not occur, in none of its forms.
pub(super) fn hidden(value: &str, text: &str) -> String {
    if value.is_empty() {
        return text.to_owned();
    }
    let mut forms = forms(value);
    // A form may begin with another one, whose rest would stay.
    forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    let forms = forms.iter().filter(|form| !form.is_empty());
    forms.fold(text.to_owned(), |text, form| text.replace(form, REPLACEMENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_hidden_in_every_form_that_it_travels_in() {
        let value = "p/w \"1\"\n>>>?é~";
        for form in [
            value,
            "cC93ICIxIgo+Pj4/w6l+",
            "cC93ICIxIgo-Pj4_w6l-",
            "p%2Fw%20%221%22%0A%3E%3E%3E%3F%C3%A9~",
            "p%2fw%20%221%22%0a%3e%3e%3e%3f%c3%a9~",
            "p%2Fw+%221%22%0A%3E%3E%3E%3F%C3%A9~",
            "p/w \\\"1\\\"\\n>>>?é~",
            "p/w \\\\\"1\\\\\"\\\\n>>>?é~",
            "702f77202231220a3e3e3e3fc3a97e",
            "702F77202231220A3E3E3E3FC3A97E",
        ] {
            let said = hidden(value, &format!("it was <{form}>, and <{form}> again"));
            assert_eq!(said, "it was <[redacted]>, and <[redacted]> again", "{form}");
        }
        assert_eq!(hidden("", "nothing to hide"), "nothing to hide");
        assert_eq!(hidden(value, "another text"), "another text");
    }
}
