"""Writes the table that compares the regular expressions of `matches` with RE2's own.

    python3 -m venv /tmp/re2 && /tmp/re2/bin/pip install google-re2==1.1.20251105
    /tmp/re2/bin/python tests/tools/google_re2.py

`src/language/expr/functions/pattern/tests/re2.rs` reads the table. Its first line is the subjects. Each other line is a
pattern and, if RE2 takes it, the subjects in which it finds a match: bit n of the number is for subject n.
"""

import json
import pathlib
import random

import re2

TOP = pathlib.Path(__file__).resolve().parents[2]
TABLE = TOP / "src/language/expr/functions/pattern/tests/re2.jsonl"
RANDOM = 2500

SUBJECTS = [
    "", "a", "A", "b", "ab", "ba", "aa", "abc", "aB", "1", "12", "_", " ", "\t", "\n", "a\n", "\na", "a\nb",
    "\u00e9", "\u00c9", "\u00df", "\u017f", "K", "k", "\u212a", "S", "s", "\u0663", "\u00a0", "\u000b", "\u2028", "\u03bb",
    "\u039b", "\u03c2", "\u03a3", "\u0434\u043e\u043c", "\u4e2d", "-", "]", "[", "^", "\\", "{", "}", "{2}",
    "a{,2}", "&", "&&", "~", "|", ".", "*", "x-1", "foo bar", "\u0000", "\u007f", "\U0001f600", "e\u0301",
    "\u01c4", "\u01c5",
]

# Patterns about one matter each.
WRITTEN = r"""
a|b ^a$ a* a+ a? a{2} a{2,} a{1,2} a{,2} a{} a{ a{2 a{2, a{2,1} a{0} a{1000} a{1001} (a{10}){100} (a{10}){101}
((a{10}){10}){10} ((a{10}){10}){11} (a{100}b{100}){10} a{00002} a{2}? a{2}+ a** a*+ a*? a*?? a+? a?? ??a +a *a ?a {2}
{2}a ^* $* ^+ ^{2} $? \b* \B+ (?:^)* ()* (|a)* (a|)+ (?i)* |* |+ a||b || | () (?:) (?i) (?i)a (?i:a) (?-i)A (?i-s)a
(?is)a. (?s). (?s:.) (?m)^a$ (?m)^b (?-m)^b (?U)a* (?U)a*? (?x)a (?i-)a (?-)a (?)a (?ii)a (?i-i)a (?P<n>a) (?<n>a)
(?P<n>a)(?P<n>b) (?P<n>a)(?<n>b) (?P<>a) (?<>a) (?P<é>a) (?P<n-m>a) (?P<1>a) (?P=n) (?P>n) (?P'n'a) (?'n'a) (?=a)
(?!a) (?<=a) (?<!a) (?>a) (?#c)a (?|a) (?R) (?1) (a (a)) a) ( ) (( )) (?:a (?ia (?i a{2}{3} a{2}* (a*)* (a*)+ (a+)?
(?:a*)* [a] [^a] [] [^] []a] [^]a] [a [a-] [-a] [a-b] [b-a] [a-a] [--a] [+--] [a--] [a-b-c] [a-\d] [\d-a] [\d-] [-\d]
[\w-z] [[:alpha:]] [[:^alpha:]] [^[:alpha:]] [[:alpha:]-z] [a-[:alpha:]] [:alpha:] [[:nope:]] [[:alpha] [[:] [[:a
[[:word:]] [[:digit:]] [[:space:]] [[:upper:]] [[:lower:]] [[:punct:]] [[:print:]] [[:graph:]] [[:cntrl:]] [[:blank:]]
[[:alnum:]] [[:ascii:]] [[:xdigit:]] [[=a=]] [[.a.]] [[a] [a[b] [a&&b] [a&&[b]] [a||b] [a~~b] [\]] [\[] [\^] [\-]
[a\-z] [\\] [\b] [\B] [\A] [\z] [\Z] [\Q] [\E] [\C] [\n] [\t] [\a] [\f] [\v] [\r] [\0] [\07] [\1] [\01] [\8] [\x41]
[\x{41}] [\x4] [\pL] [\PL] [^\pL] [\p{Greek}] [^\PL] [\p{^L}] [\é] [\_] [^\n] [^\s\S] [\s\S] [\d\D] [^\d\D]
[^\x00-\x{10FFFF}] [\x00-\x{10FFFF}] . .. .* ^.$ ^..$ ^$ ^ $ $a a^ a$b \A \z \Z \a \b \B \c \cA \d \D \e \f \g \h \H
\i \K \l \n \N \o \p \P \q \Q \r \R \s \S \t \u \u0041 \U \v \V \w \W \x \X \y \0 \00 \01 \012 \0123 \1 \12 \123 \1234
\377 \400 \777 \8 \9 \08 \18 \x4 \x41 \xg \x{} \x{41} \x{4g} \x{10FFFF} \x{110000} \x{D800} \x{0000041}
\x{00000000041} \_ \- \. \/ \: \; \< \> \= \@ \# \% \! \" \' \, \& \~ \` \é \\ \| \* \+ \? \( \) \[ \] \{ \} \^ \$
\Aa\z \Qa.b\E \Qa.b \Q\E \E a\E \Qa\Eb\Qc \Q\\E \Qa\E* \Qab\E* \Q\E* a\Q\E* (\Qa)\E) \pN \pL \PL \p{L} \p{Lu} \p{^Lu}
\P{Lu} \P{^Lu} \p{Ll} \p{Lt} \p{Lm} \p{Lo} \p{LC} \p{L&} \p{Mn} \p{Nd} \p{Nl} \p{Pc} \p{Pd} \p{Sm} \p{Sc} \p{So}
\p{Zs} \p{Zl} \p{Cc} \p{Cf} \p{Co} \p{Cs} \p{Cn} \pC \p{C} \p{M} \p{Z} \p{S} \p{P} \p{Any} \p{any} \p{ASCII}
\p{Assigned} \p{Greek} \p{greek} \p{GREEK} \p{Grek} \p{Latin} \p{Latn} \p{Cyrillic} \p{Han} \p{Common} \p{Inherited}
\p{Zinh} \p{Arabic} \p{Yi} \p{Nko} \p{Old_Italic} \p{OldItalic} \p{old_italic} \p{Script=Greek} \p{sc=Greek} \p{gc=L}
\p{IsGreek} \p{InGreek} \p{Alphabetic} \p{White_Space} \p{Emoji} \p{Letter} \p{Uppercase_Letter} \p{L \pé \p{} \p{^}
\pX \pl \p{l} \p{lu} \p{ L} \p{^Greek} \P{^Greek} (?i)k (?i)K (?i)s (?i)ß (?i)é (?i)λ (?i)ς (?i)\x{17f} (?i)[k]
(?i)[^k] (?i)[a-z] (?i)[^a-z] (?i)\pLu (?i)\p{Lu} (?i)\p{Ll} (?i)\P{Lu} (?i)[\p{Lu}] (?i)[^\p{Lu}] (?i)\w (?i)\W
(?i)[[:upper:]] (?i)[[:lower:]] (?i)[^[:upper:]] (?i)\d (?i)ǆ (?i)ǅ (?i)\Qk\E (?i)^\x4B$ ^\w$ ^\W$ ^\d$ ^\D$ ^\s$ ^\S$
^[\w]$ ^[^\w]$ ^[\W]$ ^[^\W]$ ^[\s]$ ^[^\s]$ ^[\d]$ ^[^\d]$ \bé \Bé é\b é\B a\b \ba a\B \Ba \b\b ^\b$ ^\B$ \b$ \B$
(?m)\b (?s)\B a.b (?s)a.b a[^x]b a\nb (?m)a$ (?m)^ (?m)$ (?m)\Ab (?m)a\z a\z \Aa (a|b)*c (a|ab)(c|bcd) x*y* {a} {2,3}
a{2a} a{a} a{1,a} a{-1} a{+1} a{1 } a{999999999} a{1,999999999} a{0,1000} a{0,1001} (a{0,1000})? (a{1000}){1}
(a{1000}){0} (a{500}|b{501}){2} (a{1000})* (a{2}){501} (?:a{2}b{2}){501} ((a{2}){2}){250} ((a{2}){2}){251} a{01}
a{1,02} a{9999999999} a{0,9999999999} (?i-i)A (?-i-s)a (?-:a) (?ms-i:a) a(?i)* a*(?i)* a+(?m)? (a(?i))* a(?i)|*
a(?i)b* (?i)a(?-i)+B a{2}(?m){3} \p{Lisu} \p{Thai} \p{Cham} \p{Zzzz} \p{Sunuwar} \p{Hiragana} (?i)\p{Greek}
""".split() + [
    "a b", "a  b", " ", "a #c", "a\nb", "\\ ", "\\\n", "\\\u0001", "\\\u007f", "[ ]", "[a ]", "(?i) a", "\\x{ 41}",
    "\n", "\t", "\u0000", "[\u0000]", "(?s: .)", "[a-z&&[^b]]", "\\Qa b\\E", "(?P<n m>a)", "a{ 2}", "a{2, 3}",
]

# What random patterns are put together from.
PARTS = r"""
a b k é λ 1 ( ) (?: (?i) (?i: (?s) (?m) (?U) (?-i) [ ] [^ - ^ $ . | * + ? *? { } {2} {1,} {0,3} {,2} {2}? [:alpha:]
[[:digit:]] && ~~ \d \D \w \W \s \S \b \B \A \z \pL \PN \p{^Greek} \p{Lu} \x41 \x{e9} \Q \E \\ \] \- \. \07 \n [a-c]
[^\d] [\w-] [k] (a|b) (k)
""".split() + ["(?P<n>", " ", "\n"]


def patterns():
    draw = random.Random(1)
    made = dict.fromkeys(WRITTEN)
    while len(made) < len(WRITTEN) + RANDOM:
        made["".join(draw.choice(PARTS) for _ in range(draw.randint(1, 7)))] = None
    return made


def row(pattern, options):
    try:
        compiled = re2.compile(pattern, options)
    except re2.error:
        return [pattern, None]
    found = (bool(compiled.search(subject)) << n for n, subject in enumerate(SUBJECTS))
    return [pattern, f"{sum(found):x}"]


def main():
    options = re2.Options()
    options.log_errors = False
    rows = [SUBJECTS, *(row(pattern, options) for pattern in patterns())]
    TABLE.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    taken = sum(found is not None for _, found in rows[1:])
    print(f"{len(rows) - 1} patterns, {taken} of which RE2 takes, in {TABLE.relative_to(TOP)}")


if __name__ == "__main__":
    main()
