"""HTML and SVG elements: no user text is interpreted as markup."""

from cpsched.markup import Markup, make_markup_element


def test_escapes_text_and_attributes_but_not_markup():
    assert make_markup_element("p", '<b> & "', make_markup_element("b", "x")) == "<p>&lt;b&gt; &amp; &quot;<b>x</b></p>"
    assert make_markup_element("a", 7, href='?a&b"<') == '<a href="?a&amp;b&quot;&lt;">7</a>'
    assert make_markup_element("p", Markup("<i>")) == "<p><i></p>"


def test_attribute_names_use_hyphens():
    assert make_markup_element("text", "x", class_="g", text_anchor="end", x=1.0, y=2.26, width=None) == (
        '<text class="g" text-anchor="end" x="1" y="2.3">x</text>'
    )


def test_formats_nested_and_empty_elements():
    assert (make_markup_element("rect", x=1), make_markup_element("td")) == ('<rect x="1"/>', "<td></td>")
    assert make_markup_element("rect", make_markup_element("title", "t"), x=1) == '<rect x="1"><title>t</title></rect>'


def test_templates_accept_markup():
    assert Markup("<i>").__html__() == "<i>"
