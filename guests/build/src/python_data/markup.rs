//! C libraries that read, check, transform and write XML and HTML.

use super::static_libraries::{Group, Library};
use crate::debian::Original;

/// None of them leaves functions by `longjmp`.
pub(super) const MARKUP: Group = Group { name: "markup", libraries: &[XML2, XSLT, EXSLT], flags: &[] };

const XML2: Library = Library {
    name: "xml2",
    source: Original {
        package: "libxml2",
        suite: "forky",
        archive: "libxml2_2.15.4+dfsg.orig.tar.xz",
        sha256: "5868d20db42ee21e4881bc53050c7fa226286a277cb3d0543f76b81f7571e934",
        variable: "CELLAR_XML2_SOURCE",
    },
    files: &[
        "HTMLparser.c",
        "HTMLtree.c",
        "SAX2.c",
        "buf.c",
        "c14n.c",
        "catalog.c",
        "chvalid.c",
        "debugXML.c",
        "dict.c",
        "encoding.c",
        "entities.c",
        "error.c",
        "globals.c",
        "hash.c",
        "list.c",
        "parser.c",
        "parserInternals.c",
        "pattern.c",
        "relaxng.c",
        "schematron.c",
        "threads.c",
        "tree.c",
        "uri.c",
        "valid.c",
        "xinclude.c",
        "xlink.c",
        "xmlIO.c",
        "xmlmemory.c",
        "xmlreader.c",
        "xmlregexp.c",
        "xmlsave.c",
        "xmlschemas.c",
        "xmlschemastypes.c",
        "xmlstring.c",
        "xmlwriter.c",
        "xpath.c",
        "xpointer.c",
    ],
    without: &[],
    includes: &[".", "include"],
    headers: &[("include/libxml", "libxml")],
    flags: &[],
};

/// One archive with two libraries.
const XSLT_SOURCE: Original = Original {
    package: "libxslt",
    suite: "forky",
    archive: "libxslt_1.1.45.orig.tar.xz",
    sha256: "9acfe68419c4d06a45c550321b3212762d92f41465062ca4ea19e632ee5d216e",
    variable: "CELLAR_XSLT_SOURCE",
};

const XSLT: Library = Library {
    name: "xslt",
    source: XSLT_SOURCE,
    files: &["libxslt"],
    without: &[],
    includes: &["."],
    headers: &[("libxslt", "libxslt")],
    flags: &[],
};

const EXSLT: Library = Library {
    name: "exslt",
    source: XSLT_SOURCE,
    files: &["libexslt"],
    without: &[],
    includes: &["."],
    headers: &[("libexslt", "libexslt")],
    flags: &[],
};
