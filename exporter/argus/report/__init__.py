"""``argus report``: one run and one time range as a page that can be read anywhere.

`gather` asks a Prometheus (an existing one, or the private one of ``argus diagnose``) and gives a
`model.Document`; `page` makes HTML of it.  Only `plots` and `page` need matplotlib and Jinja.
"""
