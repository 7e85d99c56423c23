/* What a program that asks for libjpeg's version is told. */
#define JVERSION "6b  27-Mar-1998"
#define JCOPYRIGHT "Copyright (C) 1991-2023 The libjpeg-turbo Project and many others"
#define JCOPYRIGHT_SHORT "Copyright (C) 1991-2023 The libjpeg-turbo Project and many others"
