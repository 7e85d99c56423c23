// What an image has besides the language: nothing here. Other images have a file of their own in the place of this one.
(function (host, kit) {})
