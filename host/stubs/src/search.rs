//! Functions that fit a text best, by BM25 over the words of their names and descriptions.

use std::collections::BTreeMap;

use crate::{Function, Group};

/// Characters and words of a question that are looked at.
const QUESTION_CHARACTERS: usize = 400;
const QUESTION_WORDS: usize = 32;
/// Characters of a description that are.
const DESCRIPTION_CHARACTERS: usize = 1_000;
/// Times that a word of a name counts, compared with one of a description.
const NAME_WEIGHT: f64 = 3.0;
/// The part of a word's weight that a longer word with its beginning has.
const PREFIX_WEIGHT: f64 = 0.5;
/// Letters of a word that may be the beginning of another.
const PREFIX_LETTERS: usize = 3;
/// The usual parameters of BM25.
const SATURATION: f64 = 1.2;
const LENGTH_WEIGHT: f64 = 0.75;

/// Returns the functions that fit a text, the best first, and by name those that fit alike.
pub(crate) fn ranked<'a>(functions: &'a [Function], text: &str, limit: usize) -> Vec<&'a Function> {
    let question: String = text.chars().take(QUESTION_CHARACTERS).collect();
    let mut asked = words_of(&question);
    asked.sort();
    asked.dedup();
    asked.truncate(QUESTION_WORDS);
    let documents: Vec<Document> = functions.iter().map(Document::of).collect();
    let count = documents.len() as f64;
    let length = documents.iter().map(|document| document.length).sum::<f64>() / count.max(1.0);
    let mut scores = vec![0.0; documents.len()];
    for word in &asked {
        let found: Vec<f64> = documents.iter().map(|document| document.count(word)).collect();
        let having = found.iter().filter(|found| **found > 0.0).count() as f64;
        let rarity = (1.0 + (count - having + 0.5) / (having + 0.5)).ln();
        for ((score, found), document) in scores.iter_mut().zip(found).zip(&documents) {
            let long = 1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * document.length / length.max(1.0);
            *score += rarity * found * (SATURATION + 1.0) / (found + SATURATION * long);
        }
    }
    let mut ranked: Vec<(f64, &Function)> =
        scores.into_iter().zip(functions).filter(|(score, _)| *score > 0.0).collect();
    ranked.sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.qualified().cmp(&other.qualified())));
    ranked.into_iter().take(limit).map(|(_, function)| function).collect()
}

/// Words of a function, each with its weight.
struct Document {
    words: BTreeMap<String, f64>,
    length: f64,
}

impl Document {
    fn of(function: &Function) -> Document {
        let mut document = Document { words: BTreeMap::new(), length: 0.0 };
        document.add(&function.name, NAME_WEIGHT);
        if let Group::Pack(of) | Group::Connector(of) = &function.group {
            document.add(of, 1.0);
        }
        let said: String = function.description.chars().take(DESCRIPTION_CHARACTERS).collect();
        document.add(&said, 1.0);
        document
    }

    fn add(&mut self, text: &str, weight: f64) {
        for word in words_of(text) {
            *self.words.entry(word).or_default() += weight;
            self.length += 1.0;
        }
    }

    fn count(&self, word: &str) -> f64 {
        let whole = self.words.get(word).copied().unwrap_or_default();
        if whole > 0.0 || word.len() < PREFIX_LETTERS {
            return whole;
        }
        let longer = self.words.range(word.to_owned()..).take_while(|(longer, _)| longer.starts_with(word));
        longer.map(|(_, weight)| weight * PREFIX_WEIGHT).sum()
    }
}

/// Returns the words of a text in lower case: those of `createIssue` and `create_issues` are `create` and `issue`.
fn words_of(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for character in text.chars() {
        let is_new = !character.is_alphanumeric() || (was_lower && character.is_uppercase());
        if is_new {
            words.push(String::new());
        }
        was_lower = character.is_lowercase() || character.is_numeric();
        if let (true, Some(word)) = (character.is_alphanumeric(), words.last_mut()) {
            word.extend(character.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words.into_iter().map(singular).collect()
}

/// A word without the `s` of the plural.
fn singular(word: String) -> String {
    match word.strip_suffix('s') {
        Some(stem) if stem.len() >= PREFIX_LETTERS && !stem.ends_with('s') => stem.to_owned(),
        _ => word,
    }
}
