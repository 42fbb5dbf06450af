"""Elements of HTML and SVG: nothing that a user wrote is markup."""

from cpsched.markup import Markup, make_element


def test_texts_and_attributes_are_escaped_and_markup_is_not():
    assert make_element("p", '<b> & "', make_element("b", "x")) == "<p>&lt;b&gt; &amp; &quot;<b>x</b></p>"
    assert make_element("a", 7, href='?a&b"<') == '<a href="?a&amp;b&quot;&lt;">7</a>'
    assert make_element("p", Markup("<i>")) == "<p><i></p>"


def test_attributes_have_hyphens_and_none_is_left_out():
    assert make_element("text", "x", class_="g", text_anchor="end", x=1.0, y=2.26, width=None) == (
        '<text class="g" text-anchor="end" x="1" y="2.3">x</text>'
    )


def test_an_element_that_holds_nothing():
    assert (make_element("rect", x=1), make_element("td")) == ('<rect x="1"/>', "<td></td>")
    assert make_element("rect", make_element("title", "t"), x=1) == '<rect x="1"><title>t</title></rect>'


def test_templates_take_markup_as_it_is():
    assert Markup("<i>").__html__() == "<i>"
